package admin

import (
	"fmt"
	"strings"
)

// Text returns the columns as DDL with comments, as a value of the key schema.
func (p *SchemaProposal) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "/* topic %s: %d records of %d partitions%s */\n", ddlComment(p.Topic), p.Records, p.Partitions, leftOut(p))
	comma := false
	for _, f := range p.Columns {
		if f.DDL == "" {
			continue
		}
		if comma {
			b.WriteString(",\n")
		}
		comma = true
		fmt.Fprintf(&b, "%s /* %s */", f.DDL, ddlComment(describe(p, f)))
	}
	if comma {
		b.WriteString("\n")
	}
	for _, f := range p.Columns {
		if f.DDL == "" {
			fmt.Fprintf(&b, "/* field %q has no column: %s (%s) */\n", ddlComment(f.Field), f.Problem, ddlComment(describe(p, f)))
		}
	}
	return b.String()
}

// ddlComment returns a text that does not end a comment in DDL.
func ddlComment(text string) string { return strings.ReplaceAll(text, "*/", "* /") }

// leftOut says which records do not count in a proposal.
func leftOut(p *SchemaProposal) string {
	var parts []string
	if p.Tombstones > 0 {
		parts = append(parts, Counting(p.Tombstones, "record")+" without a value")
	}
	if p.HealthRecords > 0 {
		parts = append(parts, Counting(p.HealthRecords, "health check"))
	}
	for _, r := range p.Refused {
		parts = append(parts, fmt.Sprintf("%s that cannot become rows (%s)", Counting(int64(r.Count), "record"), r.Reason))
	}
	if len(parts) == 0 {
		return ""
	}
	return "; left out: " + strings.Join(parts, ", ")
}

// describe says how often a field has a value, and of which kinds its values are.
func describe(p *SchemaProposal, f ProposedColumn) string {
	var b strings.Builder
	b.WriteString(share(f.Records, p.Records))
	if f.Nulls > 0 {
		fmt.Fprintf(&b, ", null in %s", share(f.Nulls, p.Records))
	}
	if len(f.Kinds) > 0 && len(f.Conflicts) == 0 {
		fmt.Fprintf(&b, ": %s", kindNames(f.Kinds))
	}
	for _, c := range f.Conflicts {
		fmt.Fprintf(&b, "; CONFLICT in %s: %s", c.Path, countedKinds(c.Kinds))
	}
	if f.Value != nil {
		fmt.Fprintf(&b, ", for example %s", *f.Value)
	}
	return b.String()
}

func share(n, of int64) string {
	if n == of {
		return "all records"
	}
	return fmt.Sprintf("%d of %s", n, Counting(of, "record"))
}

func kindNames(kinds []ValueCount) string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.Kind
	}
	return strings.Join(names, ", ")
}

func countedKinds(kinds []ValueCount) string {
	parts := make([]string, len(kinds))
	for i, k := range kinds {
		parts[i] = fmt.Sprintf("%s %d", k.Kind, k.Count)
	}
	return strings.Join(parts, ", ")
}
