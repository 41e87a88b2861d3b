package config

import (
	"fmt"
	"log/slog"
	"math"
	"runtime/debug"
	"strconv"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"sluice/connector"
	"sluice/reliability/bytepool"
)

const (
	// minMemory is the least memory with which the process makes progress, if records have ordinary sizes.
	minMemory = 128 << 20
	// defaultMemory is the limit without configuration and cgroup limit.
	defaultMemory = 512 << 20
	// besides is the memory that the process needs outside of pools, fingerprints and tables.
	besides = 48 << 20
	// perTable is the memory of a table with some partitions: decoder, writer, metrics and the state of its log.
	perTable = 160 << 10
)

// configured is the value of the field source of a Budget whose limit config.yaml sets.
const configured = "configured"

// Budget is the division of memory.limit, in bytes. The memory outside of the pools is for encoding, for the rest of
// the process, and for garbage that is not collected yet.
type Budget struct {
	Limit  int64
	source string
	fetch  int64 // fetch is for responses and the records in them
	batch  int64 // batch is for rows and encoded files
	// Fingerprints is the memory for fingerprints; 0 if no topic declares an identity.
	Fingerprints int64
}

// divide returns the budget for a configured limit. For the limit 0, which means auto, it uses 80% of cgroup, the limit
// of the container, or defaultMemory if cgroup is 0. It returns an error for a limit below minMemory.
func divide(limit, cgroup int64) (Budget, error) {
	b := Budget{Limit: limit, source: configured}
	switch {
	case limit != 0:
	case cgroup > 0:
		b.Limit, b.source = cgroup/5*4, "80% of the cgroup's "+FormatSize(cgroup)
	default:
		b.Limit, b.source = defaultMemory, "no cgroup limit"
	}
	if b.Limit < minMemory {
		return b, fmt.Errorf("%s (%s) is less than %s, which is needed for a response of a broker, a batch of rows and its encoder",
			FormatSize(b.Limit), b.source, FormatSize(minMemory))
	}
	return b.beside(0), nil
}

// beside returns the budget with this much memory for fingerprints, and with new pools: the fetch pool gets 15% of the
// limit, the batch pool 40%, both after the memory for fingerprints and [Budget.spared] are subtracted.
func (b Budget) beside(fingerprints int64) Budget {
	const page = 64 << 10
	b.Fingerprints = fingerprints
	share := b.Limit - fingerprints - b.spared()
	b.fetch = share * 15 / 100 / page * page
	b.batch = share * 40 / 100 / page * page
	return b
}

// spared returns how much memory the pools do not get if the limit is below 256 MiB: a third of the difference. A
// process needs a larger part of a small limit for itself.
func (b Budget) spared() int64 { return max(256<<20-b.Limit, 0) / 3 }

// rest returns the memory that encoders and tables share. It is what pools, fingerprints and the process itself leave
// of the limit. Of the spared memory, it includes 45%: the other 55%, which the pools would have got, stay free.
func (b Budget) rest() int64 {
	return b.Limit - b.spared()*55/100 - b.Fingerprints - b.fetch - b.batch - besides
}

// exceeds reports whether a process with this budget may need more memory than its container has: the limit is more
// than 87% of cgroup. cgroup is the limit of the container, 0 if it has none.
func (b Budget) exceeds(cgroup int64) bool { return cgroup > 0 && b.Limit > cgroup/100*87 }

// defaultBudget returns the budget of a configuration without a file.
func defaultBudget() Budget {
	b, err := divide(defaultMemory, 0)
	if err != nil {
		panic(err) // cannot happen, because the arguments are constants
	}
	return b
}

// String formats the division of the limit.
func (b Budget) String() string {
	s := fmt.Sprintf("%s to fetch, %s for batches", RoundSize(b.fetch), RoundSize(b.batch))
	if b.Fingerprints > 0 {
		s += fmt.Sprintf(", %s for fingerprints", RoundSize(b.Fingerprints))
	}
	if b.source == configured {
		return s
	}
	return fmt.Sprintf("%s, %s: %s", RoundSize(b.Limit), b.source, s)
}

// RoundSize formats a size in whole MiB.
func RoundSize(n int64) string { return strconv.FormatInt(n>>20, 10) + "MiB" }

// Pools returns new pools of the sizes in the budget.
func (b Budget) Pools() connector.Pools {
	return connector.Pools{Fetch: bytepool.New(b.fetch), Batch: bytepool.New(b.batch)}
}

// Encoders returns how many row groups all tables together may encode at the same time. It is the number of cores, or
// less if the memory outside of the pools is too small for two chunks of rows for each; at least 1.
func (b Budget) Encoders(cores int) int {
	chunk := min(max(b.batch/int64(4*cores), 512<<10), 16<<20)
	return int(min(max(b.rest()/(2*chunk), 1), int64(cores)))
}

// Tables returns the number of tables for which the budget has room.
func (b Budget) Tables() int {
	return int(max(b.rest()/perTable, 1))
}

// forTables returns a limit with room for n tables: the present one, or the next multiple of 64 MiB that is enough.
func (b Budget) forTables(n int) int64 {
	const step = 64 << 20
	for b.Tables() < n {
		b.Limit += step - b.Limit%step
		b = b.beside(b.Fingerprints)
	}
	return b.Limit
}

// runtime returns the memory limit for the garbage collector. It is at least 32 MiB below the budget's, because the
// collector does not count the resident pages of the binary, and frees garbage late. A budget below 256 MiB leaves more.
func (b Budget) runtime() int64 { return b.Limit - 32<<20 - b.spared()/8 }

// LimitRuntime sets the memory limit of the garbage collector, unless the variable GOMEMLIMIT is set. It logs the
// budget in both cases.
func (b Budget) LimitRuntime(logger *slog.Logger, env func(string) string) {
	attrs := []any{"limit", RoundSize(b.Limit), "source", b.source, "fetch", RoundSize(b.fetch), "batch", RoundSize(b.batch), "fingerprints", RoundSize(b.Fingerprints)}
	if v := env("GOMEMLIMIT"); v != "" {
		logger.Info("memory", append(attrs, "gomemlimit", v+" (environment)")...)
		return
	}
	debug.SetMemoryLimit(b.runtime())
	logger.Info("memory", attrs...)
}

// checkMemory divides memory.limit among the pools and fingerprints. It lowers the default of kafka.fetch.max_bytes to
// an eighth of the fetch pool, and reports a configured value above half of the pool.
func (l *loader) checkMemory() {
	c := l.config
	if l.failed("memory.limit") {
		return
	}
	cgroup := cgroupLimit()
	b, err := divide(c.Memory.Limit, cgroup)
	if err != nil {
		l.report(l.at("memory.limit"), "%v: give the process more, or set memory.limit", err)
		return
	}
	b = l.reserve(b)
	c.Budget = b
	if b.exceeds(cgroup) {
		l.warning(l.at("memory.limit"), "%s and the 15%% that may be added are more than the %s of the container, which kills at its limit: write %s or less",
			RoundSize(b.Limit), RoundSize(cgroup), RoundSize(cgroup/5*4))
	}
	named := map[string]bool{}
	for _, t := range c.Topics {
		named[t.Table] = true
	}
	if n := len(named); n > b.Tables() {
		l.warning(l.at("memory.limit"), "%s has room for %d tables beside the pools, the topics have %d: write %s or more",
			RoundSize(b.Limit), b.Tables(), n, RoundSize(b.forTables(n)))
	}
	o := c.origins["memory.limit"]
	o.Note = b.String()
	c.origins["memory.limit"] = o
	const key = "kafka.fetch.max_bytes"
	switch {
	case l.failed(key):
	case !l.has(key):
		if most := b.fetch / 8; c.Kafka.Fetch.MaxBytes > most {
			c.Kafka.Fetch.MaxBytes = most
			c.origins[key] = Origin{Note: "an eighth of what memory.limit gives to fetching"}
		}
	case c.Kafka.Fetch.MaxBytes > b.fetch/2:
		l.report(l.at(key), "%s is more than half of the %s that memory.limit (%s) gives to fetching: write %s or less, or raise memory.limit",
			FormatSize(c.Kafka.Fetch.MaxBytes), RoundSize(b.fetch), RoundSize(b.Limit), RoundSize(b.fetch/2))
	}
}

// cgroupLimit returns the memory limit of the container in bytes: the lowest of its cgroup and those above it. It
// returns 0 if there is no limit, or it cannot be read.
func cgroupLimit() int64 {
	limit, err := memlimit.FromCgroup()
	if err != nil || limit > math.MaxInt64 {
		return 0
	}
	return int64(limit)
}
