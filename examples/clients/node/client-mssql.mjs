// SQL Server from Node with tedious: sends in a transaction, claims, settles.
//   npm install tedious && MSSQL_SERVER=… MSSQL_PORT=1433 MSSQL_USER=… MSSQL_PASSWORD=… MSSQL_DATABASE=… node client-mssql.mjs
import { randomUUID } from "node:crypto";
import { Connection, Request, TYPES } from "tedious";

const { MSSQL_SERVER: server, MSSQL_PORT: port, MSSQL_USER: userName, MSSQL_PASSWORD: password } = process.env;
const connection = new Connection({
  server,
  authentication: { type: "default", options: { userName, password } },
  options: { port: Number(port), database: process.env.MSSQL_DATABASE, encrypt: false, useColumnNames: true },
});
const owner = randomUUID(); // who has claimed: one for each worker
await new Promise((resolve, reject) => connection.connect((error) => (error ? reject(error) : resolve())));

// Runs a batch with parameters, and answers its rows.
function rowsOf(text, parameters = {}) {
  return new Promise((resolve, reject) => {
    const rows = [];
    const request = new Request(text, (error) => (error ? reject(error) : resolve(rows)));
    for (const [name, value] of Object.entries(parameters)) request.addParameter(name, TYPES.NVarChar, value);
    request.on("row", (columns) =>
      rows.push(Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, column.value]))),
    );
    connection.execSql(request);
  });
}

// The order and its message: both, or neither. One batch, one transaction, whatever goes wrong.
await rowsOf(
  `SET XACT_ABORT ON;
   BEGIN TRANSACTION;
   INSERT INTO dbo.orders (customer) VALUES (@customer);
   EXEC infra.outbox_enqueue @topic = N'order.placed', @payload = @payload, @group_id = @customer;
   COMMIT TRANSACTION;`,
  { customer: "Ann", payload: JSON.stringify({ customer: "Ann" }) },
);

const claimed = await rowsOf("EXEC infra.outbox_claim @owner_token = @owner, @lease_seconds = 30, @batch_size = 10", {
  owner,
});
const outcomes = claimed.map((message) => {
  console.log(`order of ${JSON.parse(message.payload).customer}`);
  return { id: Number(message.id), result: "ack" };
});
await rowsOf("EXEC infra.outbox_settle @owner_token = @owner, @outcomes = @outcomes", {
  owner,
  outcomes: JSON.stringify(outcomes),
});
console.log(`${outcomes.length} handled`);
connection.close();
