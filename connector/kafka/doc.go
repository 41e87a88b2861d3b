// Package kafka is the adapter to Kafka. It implements [connector.Group], [connector.Log] and [connector.DeadLetters].
//
//	Client       connections, requests, metadata             dial.go exchange.go metadata.go byname.go wire.go
//	Group        membership, assignment, committed offsets       group.go membership.go watcher.go balancer.go offsets.go
//	Log          fetching records, ends of logs              log.go, then fetcher.go cursor.go locate.go judge.go
//	DeadLetters  records that cannot become a row            deadletters.go lettertopic.go produce.go
//	errors       classes of Kafka's error codes              errors.go
//
// The library kafka-go provides the connections and the group protocol. This package does not use it for records:
// its readers deliver aborted records, its metadata requests create topics, and its group forgets events between
// generations. Each workaround is explained beside the code that needs it.
package kafka
