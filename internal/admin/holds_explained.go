package admin

import (
	"slices"

	"sluice/reliability/hold"
)

// hides reports whether a hold with the reason in cause explains another hold of the same partition, which has the
// reason in reason. Reports leave out the explained hold. For example, a member knows that the table it wrote was
// deleted; a command sees only the table and Kafka, and takes this for lost positions.
func hides(cause, reason hold.Reason) bool {
	if cause != hold.TableReplaced {
		return false
	}
	return reason == hold.UnknownHistory || reason == hold.TopicRecreated || reason == hold.ClusterChanged
}

// dropHidden removes each hold that another hold of the same partition explains; see [hides].
func (h *held) dropHidden() {
	h.all = slices.DeleteFunc(slices.Clone(h.all), func(p *Hold) bool {
		return slices.ContainsFunc(h.all, func(o *Hold) bool {
			return o.Topic == p.Topic && (o.Partition == p.Partition || o.Partition < 0) && hides(o.Reason, p.Reason)
		})
	})
}
