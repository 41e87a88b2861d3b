package lab

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Listener is an additional listener of a broker, for clients that use TLS or authenticate.
type Listener struct {
	Name     string // upper case
	Protocol string // SSL, SASL_SSL, SASL_PLAINTEXT
	// Settings are the broker's settings for this listener, without the prefix listener.name.NAME.
	Settings map[string]string
}

// further returns configuration lines that add listeners. These lines replace lines of configure that have the same
// key.
func (k *Kafka) further(listeners []Listener, controller string) (lines []string, err error) {
	if len(listeners) == 0 {
		return nil, nil
	}
	k.Addrs = make(map[string]string)
	advertised := []string{"DIRECT://" + k.Addr}
	protocols := []string{"DIRECT:PLAINTEXT", "CONTROLLER:PLAINTEXT"}
	for _, l := range listeners {
		addr, err := FreeAddr()
		if err != nil {
			return nil, err
		}
		k.Addrs[l.Name] = addr
		advertised = append(advertised, l.Name+"://"+addr)
		protocols = append(protocols, l.Name+":"+l.Protocol)
		for _, key := range slices.Sorted(maps.Keys(l.Settings)) {
			lines = append(lines, fmt.Sprintf("listener.name.%s.%s=%s", strings.ToLower(l.Name), key, l.Settings[key]))
		}
	}
	return append(lines,
		"listeners="+strings.Join(append(advertised, "CONTROLLER://"+controller), ","),
		"advertised.listeners="+strings.Join(advertised, ","),
		"listener.security.protocol.map="+strings.Join(protocols, ","),
	), nil
}
