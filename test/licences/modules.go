package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// releaseTags are the build tags of make build and make release. TestRelease compares releaseTags with the Makefile.
const releaseTags = "grpcnotrace"

// platforms are the platforms of a release. The linked modules may differ between them.
var platforms = [...]string{"linux/amd64", "linux/arm64"}

// text is a licence, notice or patent file of a module.
type text struct {
	file string // path below the module, with slashes
	body string
}

// module is a linked module with its licences and notices.
type module struct {
	path, version string
	dir           string
	licence       string // SPDX identifiers, joined by AND
	licences      []text // LICENSE, COPYING and PATENTS files
	notices       []text
}

// packages returns the packages that a binary with these build tags links on a platform. Each has five fields: import path, module path,
// version, folder of the module, folder of the package.
func packages(ctx context.Context, dir, platform, tags string) ([][]string, error) {
	const format = "{{.ImportPath}}\t{{with .Module}}{{.Path}}\t{{.Version}}\t{{.Dir}}{{else}}\t\t{{end}}\t{{.Dir}}"
	system, arch, _ := strings.Cut(platform, "/")
	cmd := exec.CommandContext(ctx, "go", "list", "-mod=readonly", "-deps", "-tags", tags, "-f", format, "./cmd/connector")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch)
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return nil, fmt.Errorf("go list for %s: %w", platform, err)
	}
	var all [][]string
	for line := range strings.Lines(string(out)) {
		all = append(all, strings.Split(strings.TrimRight(line, "\n"), "\t"))
	}
	return all, nil
}

// linked returns the modules that a release links: the standard library first, then the others in the order of their
// paths.
func linked(ctx context.Context, dir string) ([]*module, error) {
	goroot, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	std := &module{path: "Go standard library", dir: strings.TrimSpace(string(goroot))}
	folders := map[*module]map[string]bool{std: {".": true}}
	byPath := map[string]*module{}
	for _, platform := range platforms {
		all, err := packages(ctx, dir, platform, releaseTags)
		if err != nil {
			return nil, err
		}
		for _, p := range all {
			path, version, root, folder := p[1], p[2], p[3], p[4]
			if path == "" || version == "" { // a package of the standard library, or of this module
				continue
			}
			m := byPath[path]
			if m == nil {
				m = &module{path: path, version: version, dir: root}
				byPath[path], folders[m] = m, map[string]bool{}
			}
			if err := m.above(folder, folders[m]); err != nil {
				return nil, err
			}
		}
	}
	modules := append([]*module{std}, slices.SortedFunc(maps.Values(byPath), func(a, b *module) int { return cmp.Compare(a.path, b.path) })...)
	for _, m := range modules {
		if err := m.read(slices.Sorted(maps.Keys(folders[m]))); err != nil {
			return nil, err
		}
	}
	return modules, nil
}

// above adds to seen the folder of a package and all folders above it, up to that of the module, because each may have
// a licence file.
func (m *module) above(folder string, seen map[string]bool) error {
	below, err := filepath.Rel(m.dir, folder)
	if err != nil {
		return fmt.Errorf("module %s: %w", m.path, err)
	}
	for ; ; below = filepath.Dir(below) {
		seen[below] = true
		if below == "." {
			return nil
		}
	}
}

var (
	licenceName = regexp.MustCompile(`(?i)^(licen[cs]es?|copying|unlicense)([-._].*)?$`)
	noticeName  = regexp.MustCompile(`(?i)^notice([-._].*)?$`)
	patentsName = regexp.MustCompile(`(?i)^patents([-._].*)?$`)
)

// read reads the licences and notices of a module from these folders, and identifies its licences.
func (m *module) read(folders []string) error {
	ids := map[string]bool{}
	for _, folder := range folders {
		entries, err := os.ReadDir(filepath.Join(m.dir, folder))
		if err != nil {
			return fmt.Errorf("module %s: %w", m.path, err)
		}
		for _, e := range entries {
			name := e.Name()
			isLicence, isNotice := licenceName.MatchString(name), noticeName.MatchString(name)
			if e.IsDir() || strings.HasSuffix(name, ".go") || !isLicence && !isNotice && !patentsName.MatchString(name) {
				continue
			}
			body, err := os.ReadFile(filepath.Join(m.dir, folder, name))
			if err != nil {
				return fmt.Errorf("module %s: %w", m.path, err)
			}
			t := text{filepath.ToSlash(filepath.Join(folder, name)), clean(body)}
			if isNotice {
				m.notices = append(m.notices, t)
				continue
			}
			m.licences = append(m.licences, t)
			if !isLicence {
				continue
			}
			found, err := identify(t.body)
			if err != nil {
				return fmt.Errorf("module %s, file %s: %w", m.path, t.file, err)
			}
			for _, id := range found {
				ids[id] = true
			}
		}
	}
	if len(ids) == 0 {
		return fmt.Errorf("module %s has no licence file", m.path)
	}
	m.licence = strings.Join(slices.Sorted(maps.Keys(ids)), " AND ")
	return nil
}

// clean removes differences that mean nothing: a byte order mark, CRLF line ends, trailing blanks, and blank lines at
// both ends.
func clean(body []byte) string {
	body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
	var b strings.Builder
	for line := range strings.Lines(strings.ReplaceAll(string(body), "\r\n", "\n")) {
		b.WriteString(strings.TrimRight(line, " \t\n"))
		b.WriteByte('\n')
	}
	return strings.Trim(b.String(), "\n") + "\n"
}
