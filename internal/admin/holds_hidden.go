package admin

import (
	"slices"

	"sluice/reliability/hold"
)

// hides reports whether a hold is the cause of another one of the same partition, which need not be shown. A member that wrote the table knows that
// it was deleted or replaced. From the table and Kafka alone, only the positions look lost then.
func hides(cause, reason hold.Reason) bool {
	if cause != hold.TableReplaced {
		return false
	}
	return reason == hold.UnknownHistory || reason == hold.TopicRecreated || reason == hold.ClusterChanged
}

// dropHidden removes the holds that another hold of the same partition hides: see [hides].
func (h *held) dropHidden() {
	h.all = slices.DeleteFunc(slices.Clone(h.all), func(p *Hold) bool {
		return slices.ContainsFunc(h.all, func(o *Hold) bool {
			return o.Topic == p.Topic && (o.Partition == p.Partition || o.Partition < 0) && hides(o.Reason, p.Reason)
		})
	})
}
