package main

import (
	"bytes"
	"fmt"
	"strings"
	"text/tabwriter"
)

const rule = "--------------------------------------------------------------------------------\n"

// notice returns the content of NOTICE: the list of modules that a release links, and the notices of these modules.
func notice(modules []*module) []byte {
	var b bytes.Buffer
	b.WriteString("Sluice\n\nThis product is licensed under the Apache License, Version 2.0 (see LICENSE).\n\n" +
		"A release links the modules below. THIRD_PARTY_LICENSES has their licences; their own notices follow the list.\n" +
		"`make notice` writes both files.\n\n")
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, m := range modules {
		fmt.Fprintf(tw, "%s\t%s\n", strings.TrimSpace(m.path+" "+m.version), m.licence)
	}
	tw.Flush()
	for _, m := range modules {
		for _, n := range m.notices {
			fmt.Fprintf(&b, "\n%s%s, %s\n%s\n%s", rule, m.path, n.file, rule, n.body)
		}
	}
	return b.Bytes()
}

// licences returns the content of THIRD_PARTY_LICENSES: each licence text once, after the modules and files that have
// it.
func licences(modules []*module) []byte {
	var order []string
	of := map[string][]string{}
	for _, m := range modules {
		for _, l := range m.licences {
			if of[l.body] == nil {
				order = append(order, l.body)
			}
			of[l.body] = append(of[l.body], m.path+", "+l.file)
		}
	}
	var b bytes.Buffer
	b.WriteString("The licences of what a release of Sluice links. NOTICE lists the modules with their versions.\n")
	for _, body := range order {
		fmt.Fprintf(&b, "\n%s%s\n%s\n%s", rule, strings.Join(of[body], "\n"), rule, body)
	}
	return b.Bytes()
}
