#!/bin/sh
# The rights in Kafka of the user sluice: a member of the group "orders" that reads the topic "orders", has dead letters
# with their table, and a canary. Run it with the address of a broker, as a user who may change ACLs.
#
#   sh kafka-acls.sh broker:9092 [--command-config admin.properties]
set -eu
acl() { kafka-acls.sh --bootstrap-server "$@" --add --allow-principal User:sluice; }

# The source topic. DescribeConfigs is for its retention, in check and in metrics.
acl "$@" --operation Read --operation DescribeConfigs --topic orders
# Dead letters. Create is needed until the topic exists; DescribeConfigs is for its size limit and its retention.
acl "$@" --operation Write --operation Create --operation Read --operation DescribeConfigs --topic orders-dlq
# The canary (health.canary.topic). Create is needed until the topic exists.
acl "$@" --operation Write --operation Create --operation Read --topic orders-canary
# The group (kafka.group; without it, the name of the pipeline).
acl "$@" --operation Read --group orders
