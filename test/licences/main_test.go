package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var top = filepath.Join("..", "..")

// TestFiles expects NOTICE and THIRD_PARTY_LICENSES to be what the licences of the linked modules ask for.
func TestFiles(t *testing.T) {
	if err := run(t.Context(), top, false); err != nil {
		t.Error(err)
	}
	modules, err := linked(t.Context(), top)
	if err != nil {
		t.Fatal(err)
	}
	text := string(notice(modules))
	for _, want := range []string{"\ngoogle.golang.org/grpc, NOTICE.txt\n", "\ngithub.com/apache/arrow-go/v18 v", "\nGo standard library  "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in NOTICE", want)
		}
	}
	// One package of this module has its own licence, in a folder deep in the module.
	if text := string(licences(modules)); !strings.Contains(text, "\ngithub.com/klauspost/compress, zstd/internal/xxhash/LICENSE.txt\n") {
		t.Error("the licence of a package is missing")
	}
}

// TestFiles_Missing expects run to report missing files, and to write them with -write.
func TestFiles_Missing(t *testing.T) {
	root, err := filepath.Abs(top)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum", "cmd", "connector", "sink", "health", "idempotency", "reliability", "classify", "secure", "internal"} {
		if err := os.Symlink(filepath.Join(root, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(t.Context(), dir, false); err == nil || !strings.Contains(err.Error(), noticeFile) || !strings.Contains(err.Error(), licencesFile) {
		t.Errorf("missing files: %v", err)
	}
	if err := run(t.Context(), dir, true); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), dir, false); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, noticeFile), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), dir, false); err == nil || !strings.Contains(err.Error(), "make notice") {
		t.Errorf("an old file: %v", err)
	}
}

func TestIdentify(t *testing.T) {
	const (
		mit    = "Permission is hereby granted, free of charge, to any person obtaining a copy\nof this software and associated documentation files (the \"Software\")"
		bsd    = "Redistribution and use in source and binary forms, with or without\nmodification, are permitted provided that the following conditions\nare met:"
		apache = "                 Apache License\n           Version 2.0, January 2004"
		gpl    = "GNU GENERAL PUBLIC LICENSE\nVersion 3, 29 June 2007"
		lesser = "GNU LESSER GENERAL PUBLIC\n  LICENSE"
	)
	for body, want := range map[string]string{
		mit: "MIT", bsd: "BSD-2-Clause", bsd + "\nNeither the name of Google Inc.": "BSD-3-Clause", apache: "Apache-2.0",
		apache + "\n" + mit: "Apache-2.0 MIT", "Licensed under the Apache License, Version 2.0 (the \"License\")": "Apache-2.0",
		gpl: "! gnu general public license", mit + "\n" + lesser: "! gnu lesser general public license",
		"Mozilla Public License Version 2.0": "! mozilla public license", "Business Source License 1.1": "! business source license",
		"All rights reserved.": "! no licence that is known", "": "! no licence that is known",
	} {
		ids, err := identify(body)
		got := strings.Join(ids, " ")
		if reason, refuse := strings.CutPrefix(want, "! "); refuse {
			if err == nil || !strings.Contains(err.Error(), reason) {
				t.Errorf("%q: %v, %v, want %s", body, ids, err, want)
			}
		} else if err != nil || got != want {
			t.Errorf("%q: %s, %v, want %s", body, got, err, want)
		}
	}
}

// TestModule_Refused expects an error for a module without a licence file, and for one whose licence is not allowed.
func TestModule_Refused(t *testing.T) {
	for body, want := range map[string]string{"": "no licence file", "GNU General Public License": "file LICENSE: it names the gnu general public license"} {
		m := &module{path: "example.org/m", version: "v1.0.0", dir: t.TempDir()}
		if body != "" {
			if err := os.WriteFile(filepath.Join(m.dir, "LICENSE"), []byte(body), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.read([]string{"."}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", body, err)
		}
	}
}

// TestRelease expects the binary of `make build` to link no module that only tests need. The broker of the demo, and the
// client that it needs, must come with the demo alone: a build with the tag nodemo must not have them.
func TestRelease(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(top, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nTAGS := " + releaseTags + "\n", "CGO_ENABLED=0 go build -mod=readonly -trimpath -buildvcs=auto -tags $(TAGS) ", "-X main.stamped=$(VERSION)"} {
		if !strings.Contains(string(makefile), want) {
			t.Errorf("no %q in the Makefile", want)
		}
	}
	const ofDemo = "github.com/twmb/franz-go"
	for _, platform := range platforms {
		for _, tags := range []string{releaseTags, releaseTags + ",nodemo"} {
			all, err := packages(t.Context(), top, platform, tags)
			if err != nil {
				t.Fatal(err)
			}
			if len(all) < 200 || !slices.ContainsFunc(all, func(p []string) bool { return p[0] == "sluice/connector" }) {
				t.Fatalf("%s: %d packages: the list is not that of the release", platform, len(all))
			}
			demo := false
			for _, p := range all {
				demo = demo || strings.HasPrefix(p[0], ofDemo)
				for _, unwanted := range []string{
					"github.com/alicebob/miniredis", "github.com/johannesboyne/gofakes3", "pgregory.net/rapid", "github.com/CycloneDX/cyclonedx-go",
					"github.com/prometheus/exporter-toolkit", "github.com/mwitkow/go-conntrack", "golang.org/x/net/trace", "html/template",
					"github.com/twmb/franz-go/pkg/kadm", "go.uber.org/goleak", "github.com/google/go-cmp", "sluice/test", "net/http/pprof", "net/http/httptest",
				} {
					if strings.HasPrefix(p[0]+"/", unwanted+"/") {
						t.Errorf("%s, tags %s: a release links %s", platform, tags, p[0])
					}
				}
			}
			if want := tags == releaseTags; demo != want {
				t.Errorf("%s, tags %s: links the broker of the demo: %t", platform, tags, demo)
			}
		}
	}
}
