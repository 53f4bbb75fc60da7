// PostgreSQL from Go with pgx: sends in a transaction, claims, settles.
//
//	go mod init client && go get github.com/jackc/pgx/v5 && DATABASE_URL=postgresql://… go run .
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

type outcome struct {
	ID     int64  `json:"id"`
	Result string `json:"result"`
}

// place keeps the order and its message: both, or neither.
func place(ctx context.Context, db *pgx.Conn, customer string) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO orders (customer) VALUES ($1)", customer); err != nil {
			return err
		}
		payload, err := json.Marshal(map[string]string{"customer": customer})
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx,
			"SELECT infra.outbox_enqueue(topic => 'order.placed', payload => $1, group_id => $2)",
			string(payload), customer)
		return err
	})
}

// work claims up to ten messages for thirty seconds, handles them, and says what became of each.
func work(ctx context.Context, db *pgx.Conn, owner uuid.UUID) (int, error) {
	rows, err := db.Query(ctx, "SELECT id, topic, payload FROM infra.outbox_claim($1, 30, 10)", owner.String())
	if err != nil {
		return 0, err
	}
	var id int64
	var topic, payload string
	outcomes := []outcome{}
	_, err = pgx.ForEachRow(rows, []any{&id, &topic, &payload}, func() error {
		fmt.Println(topic, payload)
		outcomes = append(outcomes, outcome{id, "ack"})
		return nil
	})
	if err != nil {
		return 0, err
	}
	text, err := json.Marshal(outcomes)
	if err != nil {
		return 0, err
	}
	_, err = db.Exec(ctx, "SELECT infra.outbox_settle($1, $2)", owner.String(), string(text))
	return len(outcomes), err
}

func main() {
	ctx := context.Background()
	db, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close(ctx)
	if err := place(ctx, db, "Ann"); err != nil {
		log.Fatal(err)
	}
	handled, err := work(ctx, db, uuid.New())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(handled, "handled")
}
