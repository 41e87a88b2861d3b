// Package kafka speaks to Kafka: it implements [connector.Group], [connector.Log] and [connector.DeadLetters].
//
//	Client       connections, metadata by topic id           dial.go exchange.go metadata.go byname.go wire.go
//	Group        who reads what: membership, group offsets    group.go membership.go watcher.go balancer.go offsets.go
//	Log          records and the ends of logs                 log.go and what it names
//	DeadLetters  what cannot become a row                deadletters.go lettertopic.go produce.go
//	errors       what an error code means                     errors.go
//
// kafka-go lends its connections and the group protocol. It reads no records and decides nothing: its readers deliver
// aborted records, its metadata requests create topics, its group forgets what happens between generations. What is
// worked around stands beside the code that does it.
package kafka
