package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/sink/opslog"
)

// This file parses the arguments for partitions (TOPIC:PARTITION) and records (TOPIC:PARTITION@OFFSET). It also accepts
// TOPIC-PARTITION, which Kafka's logs and other tools write.

// dashed matches a partition as Kafka writes it.
var dashed = regexp.MustCompile(`^(.+)-([0-9]+)$`)

// parseTarget parses TOPIC, TOPIC:PARTITION or TOPIC-PARTITION. A text such as orders-3 means partition 3 of orders if
// the configuration covers a topic orders and no topic orders-3. Otherwise it means the topic orders-3.
func parseTarget(cfg *config.Config, text string) (opslog.Target, error) {
	if m := dashed.FindStringSubmatch(text); m != nil && !strings.Contains(text, ":") {
		_, topic, _ := cfg.Route(text)
		if _, meant, _ := cfg.Route(m[1]); meant && !topic {
			text = m[1] + ":" + m[2]
		}
	}
	t, err := opslog.ParseTarget(text)
	if err != nil {
		return t, fail.Usage(err)
	}
	return t, nil
}

// parsePartition parses TOPIC:PARTITION or TOPIC-PARTITION.
func parsePartition(text string) (opslog.Target, error) {
	written := text
	if m := dashed.FindStringSubmatch(text); m != nil && !strings.Contains(text, ":") {
		text = m[1] + ":" + m[2]
	}
	t, err := opslog.ParseTarget(text)
	if err == nil && t.Partition < 0 {
		err = fmt.Errorf("%q has no partition: write TOPIC:PARTITION, such as %s:0", written, written)
	}
	if err != nil {
		return t, fail.Usage(err)
	}
	return t, nil
}

// parseRecord parses TOPIC:PARTITION@OFFSET or TOPIC-PARTITION@OFFSET.
func parseRecord(text string) (opslog.Target, int64, error) {
	place, number, found := strings.Cut(text, "@")
	if !found {
		return opslog.Target{}, 0, fail.Usage(fmt.Errorf("%q is not a record: write TOPIC:PARTITION@OFFSET, such as orders:3@1207", text))
	}
	t, err := parsePartition(place)
	if err != nil {
		return t, 0, err
	}
	offset, err := parseOffset(number)
	return t, offset, err
}

func parseOffset(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fail.Usage(fmt.Errorf("%q is not an offset: write a whole number, the next offset to read", text))
	}
	return n, nil
}

// parsePlaceAndOffset parses the arguments of a command about one record: TOPIC:PARTITION@OFFSET, or TOPIC:PARTITION
// and OFFSET.
func parsePlaceAndOffset(args []string) (opslog.Target, int64, error) {
	if len(args) == 1 {
		return parseRecord(args[0])
	}
	if strings.Contains(args[0], "@") {
		return opslog.Target{}, 0, fail.Usage(errors.New("the offset is given twice: write TOPIC:PARTITION@OFFSET"))
	}
	t, err := parsePartition(args[0])
	if err != nil {
		return t, 0, err
	}
	offset, err := parseOffset(args[1])
	return t, offset, err
}
