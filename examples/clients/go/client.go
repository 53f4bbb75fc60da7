// PostgreSQL from Go with database/sql: sends in a transaction, claims, settles.
//
//	go mod init client && go get github.com/lib/pq github.com/google/uuid && DATABASE_URL=postgresql://… go run .
//
// With pgx in place of lib/pq only the import and the driver's name change: _ "github.com/jackc/pgx/v5/stdlib", "pgx".
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/google/uuid"
	_ "github.com/lib/pq"
)

type outcome struct {
	ID     int64  `json:"id"`
	Result string `json:"result"`
}

// place keeps the order and its message: both, or neither.
func place(ctx context.Context, db *sql.DB, customer string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after a commit it does nothing
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (customer) VALUES ($1)", customer); err != nil {
		return err
	}
	payload, err := json.Marshal(map[string]string{"customer": customer})
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx,
		"SELECT infra.outbox_enqueue(topic => 'order.placed', payload => $1, group_id => $2)", string(payload), customer)
	if err != nil {
		return err
	}
	return tx.Commit()
}

// work claims up to ten messages for thirty seconds, handles them, and says what became of each.
func work(ctx context.Context, db *sql.DB, owner uuid.UUID) (int, error) {
	rows, err := db.QueryContext(ctx, "SELECT id, topic, payload FROM infra.outbox_claim($1, 30, 10)", owner)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	outcomes := []outcome{}
	for rows.Next() {
		var id int64
		var topic, payload string
		if err := rows.Scan(&id, &topic, &payload); err != nil {
			return 0, err
		}
		fmt.Println(topic, payload)
		outcomes = append(outcomes, outcome{id, "ack"})
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	text, err := json.Marshal(outcomes)
	if err != nil {
		return 0, err
	}
	_, err = db.ExecContext(ctx, "SELECT infra.outbox_settle($1, $2)", owner, string(text))
	return len(outcomes), err
}

func main() {
	ctx := context.Background()
	db, err := sql.Open("postgres", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := place(ctx, db, "Ann"); err != nil {
		log.Fatal(err)
	}
	handled, err := work(ctx, db, uuid.New())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(handled, "handled")
}
