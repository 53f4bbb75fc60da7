// River, with the settings of its own benchmark (cmd/river/riverbench/river_bench.go). What the program and the
// harness say to each other stands in protocol.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const (
	payloadBytes = 200
	step         = 1000
	progress     = 20 * time.Millisecond
	jitter       = 0.3
	monotonic    = 1 // CLOCK_MONOTONIC
)

// Message is 200 bytes long as JSON.
type Message struct {
	N    int    `json:"n"`
	At   int64  `json:"at"`
	Fill string `json:"fill"`
}

// Kind names the handler.
func (Message) Kind() string { return "work" }

func message(n int, at int64) Message {
	bare, err := json.Marshal(Message{N: n, At: at})
	check(err)
	return Message{N: n, At: at, Fill: strings.Repeat("x", payloadBytes-len(bare))}
}

// Nanoseconds of the machine's monotonic clock, which every process shares; Go's own begins with its process.
func now() int64 {
	var told syscall.Timespec
	if _, _, wrong := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&told)), 0); wrong != 0 {
		check(wrong)
	}
	return told.Nano()
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type options struct {
	MaxWorkers          int `json:"max_workers"`
	FetchCooldownMillis int `json:"fetch_cooldown_ms"`
	FetchPollMillis     int `json:"fetch_poll_ms"`
}

type task struct {
	Seconds float64 `json:"seconds"`
	Workers *int    `json:"workers"`
}

func told(name string, into any) {
	if text := os.Getenv(name); text != "" {
		check(json.Unmarshal([]byte(text), into))
	}
}

// recorder keeps what was handled.
type recorder struct {
	sync.Mutex
	IDs       []string   `json:"ids"`
	Latencies [][3]int64 `json:"latencies"`
	First     int64      `json:"first"`
}

func (r *recorder) handled(id int64, message Message, timed bool) {
	at := now()
	r.Lock()
	defer r.Unlock()
	if r.First == 0 {
		r.First = at
	}
	if timed {
		r.Latencies = append(r.Latencies, [3]int64{int64(message.N), at - message.At, message.At})
	}
	r.IDs = append(r.IDs, strconv.FormatInt(id, 10))
}

type worker struct {
	river.WorkerDefaults[Message]
	recorder *recorder
	timed    bool
	wait     time.Duration
}

func (w *worker) Work(_ context.Context, job *river.Job[Message]) error {
	w.recorder.handled(job.ID, job.Args, w.timed)
	if w.wait > 0 {
		time.Sleep(w.wait)
	}
	return nil
}

func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

func pool(url string, connections int32) *pgxpool.Pool {
	config, err := pgxpool.ParseConfig(url)
	check(err)
	if connections > 0 {
		config.MaxConns = connections
	}
	made, err := pgxpool.NewWithConfig(context.Background(), config)
	check(err)
	return made
}

func producer(url string) (*pgxpool.Pool, *river.Client[pgx.Tx]) {
	there := pool(url, 1)
	client, err := river.NewClient(riverpgxv5.New(there), &river.Config{Logger: quiet()})
	check(err)
	return there, client
}

func versions() {
	found := map[string]string{"Go": strings.TrimPrefix(runtime.Version(), "go")}
	if about, ok := debug.ReadBuildInfo(); ok {
		for _, module := range about.Deps {
			switch module.Path {
			case "github.com/riverqueue/river":
				found["river"] = strings.TrimPrefix(module.Version, "v")
			case "github.com/jackc/pgx/v5":
				found["pgx"] = strings.TrimPrefix(module.Version, "v")
			}
		}
	}
	// The queue itself comes first.
	fmt.Printf("{\"river\": %q, \"pgx\": %q, \"Go\": %q}\n", found["river"], found["pgx"], found["Go"])
}

func schema(url string) {
	there := pool(url, 1)
	defer there.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(there), &rivermigrate.Config{Logger: quiet()})
	check(err)
	_, err = migrator.Migrate(context.Background(), rivermigrate.DirectionUp, nil)
	check(err)
}

func fill(url string, count int) {
	there, client := producer(url)
	defer there.Close()
	for first := 0; first < count; first += step {
		many := make([]river.InsertManyParams, 0, step)
		for n := first; n < min(first+step, count); n++ {
			many = append(many, river.InsertManyParams{Args: message(n, 0)})
		}
		_, err := client.InsertManyFast(context.Background(), many)
		check(err)
	}
}

func enqueue(url string, count int, milliseconds float64, file string) {
	there, client := producer(url)
	defer there.Close()
	calls := make([]int64, 0, min(count, 1<<20))
	due := float64(now())
	for n := 0; n < count; n++ {
		due += milliseconds * 1e6 * (1 - jitter + 2*jitter*rand.Float64())
		if wait := time.Duration(due - float64(now())); wait > 0 {
			time.Sleep(wait)
		}
		at := now()
		_, err := client.Insert(context.Background(), message(n, at), nil)
		check(err)
		calls = append(calls, now()-at)
	}
	write(file, map[string][]int64{"calls": calls})
}

func work(url, mode, file string) {
	var asked options
	var wanted task
	told("BENCH_OPTIONS", &asked)
	told("BENCH_TASK", &wanted)
	atOnce := asked.MaxWorkers
	if wanted.Workers != nil {
		atOnce = *wanted.Workers
	}
	seen := &recorder{IDs: []string{}, Latencies: [][3]int64{}}
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{
		recorder: seen, timed: mode != "drain", wait: time.Duration(wanted.Seconds * float64(time.Second)),
	})
	there := pool(url, 0)
	defer there.Close()
	check(there.Ping(context.Background()))
	client, err := river.NewClient(riverpgxv5.New(there), &river.Config{
		FetchCooldown:     time.Duration(asked.FetchCooldownMillis) * time.Millisecond,
		FetchPollInterval: time.Duration(asked.FetchPollMillis) * time.Millisecond,
		Logger:            quiet(),
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: atOnce}},
		Workers:           workers,
	})
	check(err)
	lines := bufio.NewScanner(os.Stdin)
	fmt.Println("ready")
	if !lines.Scan() || lines.Text() != "go" {
		os.Exit(1)
	}
	if mode == "drain" || mode == "steady" {
		go tell(seen)
	}
	check(client.Start(context.Background()))
	lines.Scan()
	ending, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	check(client.Stop(ending))
	seen.Lock()
	defer seen.Unlock()
	write(file, seen)
}

func tell(seen *recorder) {
	before := 0
	for {
		time.Sleep(progress)
		seen.Lock()
		count, first := len(seen.IDs), seen.First
		seen.Unlock()
		if count != before {
			before = count
			fmt.Printf("n %d %d\n", count, first)
		}
	}
}

func write(file string, what any) {
	text, err := json.Marshal(what)
	check(err)
	check(os.WriteFile(file, text, 0o600))
}

func number(text string) int {
	found, err := strconv.Atoi(text)
	check(err)
	return found
}

func main() {
	arguments := os.Args[1:]
	if len(arguments) == 0 {
		check(io.ErrUnexpectedEOF)
	}
	switch rest := arguments[1:]; arguments[0] {
	case "versions":
		versions()
	case "schema":
		schema(rest[0])
	case "fill":
		fill(rest[0], number(rest[1]))
	case "enqueue":
		milliseconds, err := strconv.ParseFloat(rest[2], 64)
		check(err)
		enqueue(rest[0], number(rest[1]), milliseconds, rest[3])
	case "work":
		work(rest[0], rest[1], rest[2])
	default:
		check(fmt.Errorf("unknown command %s", arguments[0]))
	}
}
