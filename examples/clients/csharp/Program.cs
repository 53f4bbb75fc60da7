// PostgreSQL from C# with Npgsql: sends in a transaction, claims, settles.
//   dotnet new console && dotnet add package Npgsql && DATABASE="Host=…;Username=…;Database=…" dotnet run
// SQL Server with Microsoft.Data.SqlClient is the same with SqlConnection, and EXEC infra.outbox_claim @owner_token = @owner, …
using System.Text.Json;
using Npgsql;

await using var source = NpgsqlDataSource.Create(Environment.GetEnvironmentVariable("DATABASE")!);
var owner = Guid.NewGuid(); // who has claimed: one for each worker

await Place("Ann");
Console.WriteLine($"{await Work()} handled");

// The order and its message: both, or neither. Without CommitAsync, DisposeAsync rolls back.
async Task Place(string customer)
{
    await using var connection = await source.OpenConnectionAsync();
    await using var transaction = await connection.BeginTransactionAsync();
    await using var order = new NpgsqlCommand("INSERT INTO orders (customer) VALUES ($1)", connection, transaction);
    order.Parameters.AddWithValue(customer);
    await order.ExecuteNonQueryAsync();
    await using var send = new NpgsqlCommand(
        "SELECT id FROM infra.outbox_enqueue(topic => 'order.placed', payload => $1, group_id => $2)",
        connection, transaction);
    send.Parameters.AddWithValue(JsonSerializer.Serialize(new { customer }));
    send.Parameters.AddWithValue(customer);
    await send.ExecuteScalarAsync();
    await transaction.CommitAsync();
}

// Claims up to ten messages for thirty seconds, handles them, and says what became of each.
async Task<int> Work()
{
    var outcomes = new List<object>();
    await using (var claim = source.CreateCommand("SELECT * FROM infra.outbox_claim($1, 30, 10)"))
    {
        claim.Parameters.AddWithValue(owner);
        await using var message = await claim.ExecuteReaderAsync();
        while (await message.ReadAsync())
        {
            Console.WriteLine($"{message["topic"]} {message["payload"]}");
            outcomes.Add(new { id = (long)message["id"], result = "ack" });
        }
    }
    await using var settle = source.CreateCommand("SELECT * FROM infra.outbox_settle($1, $2::jsonb)");
    settle.Parameters.AddWithValue(owner);
    settle.Parameters.AddWithValue(JsonSerializer.Serialize(outcomes));
    await settle.ExecuteNonQueryAsync();
    return outcomes.Count;
}
