// The interop scenario with franz-go: every step prints `ok STEP`; anything unexpected ends with code 1.
// Steps are named alike in the programs of all languages (see tests/tests/clients.rs).
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	perCodec   = 200
	partitions = 4
	limit      = 60 * time.Second
)

var codecs = []struct {
	name  string
	codec kgo.CompressionCodec
}{
	{"none", kgo.NoCompression()},
	{"gzip", kgo.GzipCompression()},
	{"snappy", kgo.SnappyCompression()},
	{"lz4", kgo.Lz4Compression()},
	{"zstd", kgo.ZstdCompression()},
}

func ok(step string) { fmt.Println("ok " + step) }

func check(err error, what string) {
	if err != nil {
		fail("%s: %v", what, err)
	}
}

func fail(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", arguments...)
	os.Exit(1)
}

func value(mark string, number int) string {
	return fmt.Sprintf("%s-%d-%s", mark, number, strings.Repeat("padding ", 8))
}

func client(options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(os.Args[2])}, options...)...)
	check(err, "a client")
	return made
}

func produce(topic, mark string, codec kgo.CompressionCodec) {
	producer := client(kgo.ProducerBatchCompression(codec), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer producer.Close()
	var records []*kgo.Record
	for number := range perCodec {
		records = append(records, &kgo.Record{
			Topic:     topic,
			Partition: int32(number % partitions),
			Key:       fmt.Appendf(nil, "k%d", number),
			Value:     []byte(value(mark, number)),
			Headers:   []kgo.RecordHeader{{Key: "codec", Value: []byte(mark)}, {Key: "codec"}},
		})
	}
	check(producer.ProduceSync(context.Background(), records...).FirstErr(), "producing "+mark)
}

// member is one consumer of the group; its partitions follow the rebalances.
type member struct {
	*kgo.Client
	lock  sync.Mutex
	owned map[int32]bool
}

func (m *member) count() int {
	m.lock.Lock()
	defer m.lock.Unlock()
	return len(m.owned)
}

func (m *member) change(topic string, changed map[string][]int32, owned bool) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, partition := range changed[topic] {
		if owned {
			m.owned[partition] = true
		} else {
			delete(m.owned, partition)
		}
	}
}

func join(topic, group string) *member {
	one := &member{owned: map[int32]bool{}}
	gone := func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { one.change(topic, lost, false) }
	one.Client = client(
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.SessionTimeout(10*time.Second),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, got map[string][]int32) { one.change(topic, got, true) }),
		kgo.OnPartitionsRevoked(gone),
		kgo.OnPartitionsLost(gone),
	)
	return one
}

func pollUntil(members []*member, values map[string]bool, done func() bool, what string) {
	end := time.Now().Add(limit)
	for !done() {
		if time.Now().After(end) {
			fail("%s: only %d values", what, len(values))
		}
		for _, one := range members {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			fetches := one.PollFetches(ctx)
			cancel()
			for _, failed := range fetches.Errors() {
				if failed.Err != context.DeadlineExceeded {
					fail("%s: %v", what, failed.Err)
				}
			}
			fetches.EachRecord(func(record *kgo.Record) {
				text := string(record.Value)
				if values[text] {
					fail("seen twice: %s", text)
				}
				if len(record.Headers) != 2 || record.Headers[1].Value != nil {
					fail("headers are not what was sent: %v", record.Headers)
				}
				values[text] = true
			})
		}
	}
}

func commit(one *member) {
	check(one.CommitUncommittedOffsets(context.Background()), "a commit")
}

func main() {
	topic := os.Args[3]
	ctx := context.Background()
	admin := kadm.NewClient(client())
	_, err := admin.CreateTopic(ctx, partitions, 1, nil, topic)
	check(err, "creating the topic")
	end := time.Now().Add(limit)
	for {
		found, err := admin.ListTopics(ctx, topic)
		check(err, "listing")
		if len(found[topic].Partitions) == partitions && found[topic].Err == nil {
			break
		}
		if time.Now().After(end) {
			fail("the topic has %d partitions: %v", len(found[topic].Partitions), found[topic].Err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	ok("create")

	expected := 0
	for _, codec := range codecs {
		produce(topic, codec.name, codec.codec)
		expected += perCodec
		ok("produce." + codec.name)
	}

	group := topic + "-group"
	values := map[string]bool{}
	first := join(topic, group)
	pollUntil([]*member{first}, values, func() bool { return len(values) >= expected }, "the first member")
	for _, codec := range codecs {
		for number := range perCodec {
			if !values[value(codec.name, number)] {
				fail("%s %d is missing", codec.name, number)
			}
		}
	}
	commit(first)
	ok("consume")

	second := join(topic, group)
	both := []*member{first, second}
	pollUntil(both, values, func() bool { return first.count() == 2 && second.count() == 2 }, "the rebalance")
	produce(topic, "second", kgo.Lz4Compression())
	pollUntil(both, values, func() bool { return len(values) == expected+perCodec }, "both members")
	commit(first)
	commit(second)
	ok("rebalance")

	second.Close()
	pollUntil([]*member{first}, values, func() bool { return first.count() == partitions }, "taking over")
	first.Close()
	ok("takeover")

	offsets, err := admin.FetchOffsets(ctx, group)
	check(err, "the committed offsets")
	committed := 0
	offsets.Each(func(found kadm.OffsetResponse) { committed += int(found.At) })
	if committed != expected+perCodec {
		fail("%d committed, not %d", committed, expected+perCodec)
	}
	ok("commit")

	produce(topic, "third", kgo.ZstdCompression())
	rest := map[string]bool{}
	restarted := join(topic, group)
	pollUntil([]*member{restarted}, rest, func() bool { return len(rest) >= perCodec }, "after the restart")
	commit(restarted)
	restarted.Close()
	for number := range perCodec {
		if !rest[value("third", number)] {
			fail("the restart did not go on from the commit")
		}
	}
	if len(rest) != perCodec {
		fail("the restart read %d records, not %d", len(rest), perCodec)
	}
	ok("restart")
	admin.Close()
}
