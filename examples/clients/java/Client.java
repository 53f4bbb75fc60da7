// PostgreSQL from Java with JDBC: sends in a transaction, claims, settles.
//   DATABASE_URL=jdbc:postgresql://… java -cp postgresql.jar Client.java
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.UUID;

public class Client {
    private final Connection connection;
    private final UUID owner = UUID.randomUUID(); // who has claimed: one for each worker

    Client(Connection connection) {
        this.connection = connection;
    }

    /** The order and its message: both, or neither. */
    void place(String customer) throws SQLException {
        connection.setAutoCommit(false);
        try (var order = connection.prepareStatement("INSERT INTO orders (customer) VALUES (?)");
             var send = connection.prepareStatement(
                 "SELECT id FROM infra.outbox_enqueue(topic => 'order.placed', payload => ?, group_id => ?)")) {
            order.setString(1, customer);
            order.executeUpdate();
            send.setString(1, "{\"customer\": \"" + customer + "\"}");
            send.setString(2, customer);
            send.executeQuery();
            connection.commit();
        } catch (SQLException error) {
            connection.rollback();
            throw error;
        } finally {
            connection.setAutoCommit(true);
        }
    }

    /** Claims up to ten messages for thirty seconds, handles them, and says what became of each. */
    int work() throws SQLException {
        var outcomes = new StringBuilder();
        int handled = 0;
        try (var claim = connection.prepareStatement("SELECT * FROM infra.outbox_claim(?, 30, 10)")) {
            claim.setObject(1, owner);
            for (ResultSet message = claim.executeQuery(); message.next(); handled++) {
                System.out.println(message.getString("topic") + " " + message.getString("payload"));
                outcomes.append(handled == 0 ? "" : ", ")
                    .append("{\"id\": ").append(message.getLong("id")).append(", \"result\": \"ack\"}");
            }
        }
        try (var settle = connection.prepareStatement("SELECT * FROM infra.outbox_settle(?, ?::jsonb)")) {
            settle.setObject(1, owner);
            settle.setString(2, "[" + outcomes + "]");
            settle.executeQuery();
        }
        return handled;
    }

    public static void main(String[] arguments) throws SQLException {
        try (var connection = DriverManager.getConnection(System.getenv("DATABASE_URL"))) {
            var client = new Client(connection);
            client.place("Ann");
            System.out.println(client.work() + " handled");
        }
    }
}
