package membership

import "context"

// linesPerPoll is the largest number of silent members that one poll logs by name.
const linesPerPoll = 10

// say logs members without heartbeats: each when it becomes silent, after a minute, and whenever the time without
// heartbeats has doubled. It names at most linesPerPoll of them and counts the others. It also logs members that send
// heartbeats again.
func (k *Keeper) say(ctx context.Context, members []Member) {
	after := max(silent, 2*k.Beat)
	lines, left := 0, 0
	there := make(map[string]bool, len(members))
	for _, m := range members {
		there[m.ID] = true
		next, said := k.silent[m.ID]
		switch {
		case m.Age <= after:
			if said {
				delete(k.silent, m.ID)
				k.Logger.InfoContext(ctx, "Consumer sends heartbeats again", "consumer_id", m.ID)
			}
		case m.Age < next:
		case lines == linesPerPoll:
			left++
		default:
			lines++
			k.silent[m.ID] = max(missing, 2*m.Age)
			k.Logger.WarnContext(ctx, "Consumer has not sent heartbeat", "consumer_id", m.ID, "seconds", int64(m.Age.Seconds()),
				"status", string(m.Status))
		}
	}
	if left > 0 {
		k.Logger.WarnContext(ctx, "more consumers have not sent heartbeat", "count", left)
	}
	for id := range k.silent {
		if !there[id] {
			delete(k.silent, id)
		}
	}
}
