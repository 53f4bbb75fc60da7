// PostgreSQL from Node with pg: sends in a transaction, claims, settles.
//   npm install pg && DATABASE_URL=postgresql://… node client.mjs
import { randomUUID } from "node:crypto";
import pg from "pg";

const client = new pg.Client(process.env.DATABASE_URL);
const owner = randomUUID(); // who has claimed: one for each worker
await client.connect();

// The order and its message: both, or neither.
async function place(customer) {
  await client.query("BEGIN");
  try {
    const order = await client.query("INSERT INTO orders (customer) VALUES ($1) RETURNING id", [customer]);
    const sent = await client.query(
      "SELECT * FROM infra.outbox_enqueue(topic => 'order.placed', payload => $1, group_id => $2)",
      [JSON.stringify({ order: order.rows[0].id, customer }), customer],
    );
    await client.query("COMMIT");
    return sent.rows[0].id;
  } catch (error) {
    await client.query("ROLLBACK");
    throw error;
  }
}

function handle(message) {
  const { order, customer } = JSON.parse(message.payload);
  console.log(`order ${order} of ${customer}`);
}

// Claims up to ten messages for thirty seconds, handles them, and says what became of each.
async function work() {
  const claimed = await client.query(
    "SELECT * FROM infra.outbox_claim($1, lease_seconds => 30, batch_size => 10)",
    [owner],
  );
  const outcomes = claimed.rows.map((message) => {
    try {
      handle(message);
      return { id: Number(message.id), result: "ack" };
    } catch (error) {
      return { id: Number(message.id), result: "retry", error: String(error) };
    }
  });
  await client.query("SELECT * FROM infra.outbox_settle($1, $2)", [owner, JSON.stringify(outcomes)]);
  return outcomes.length;
}

await place("Ann");
let handled = 0;
for (let batch; (batch = await work()) > 0; ) handled += batch; // a service would wait a moment and go on
console.log(`${handled} handled`);
await client.end();
