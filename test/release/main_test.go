package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

var top = filepath.Join("..", "..")

// TestTags expects make build and the image to have the tags of a release.
func TestTags(t *testing.T) {
	for file, want := range map[string]string{"Makefile": "\nTAGS := " + tags + "\n", "Dockerfile": " -tags " + tags + " "} {
		content, err := os.ReadFile(filepath.Join(top, file))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(content), want) {
			t.Errorf("%s has other tags than %s", file, tags)
		}
	}
}

// TestMaterials builds the list of a made-up binary twice, and expects the same bytes. A module that is replaced, has no
// checksum or is not in NOTICE is an error.
func TestMaterials(t *testing.T) {
	const sum = "h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
	info := func(change func(*debug.Module)) *debug.BuildInfo {
		d := &debug.Module{Path: "example.org/m", Version: "v1.0.0+incompatible", Sum: sum}
		change(d)
		return &debug.BuildInfo{
			GoVersion: "go1.99.1 X:none", Main: debug.Module{Path: "sluice", Version: "v1.2.3"}, Deps: []*debug.Module{d},
			Settings: []debug.BuildSetting{{Key: "GOARCH", Value: "arm64"}},
		}
	}
	const notice = "Sluice\n\nGo standard library                 BSD-3-Clause\nexample.org/m v1.0.0+incompatible   MIT AND ISC\n"
	binary := sha256.Sum256([]byte("binary"))
	first, err := materials(info(func(*debug.Module) {}), binary, notice)
	if err != nil {
		t.Fatal(err)
	}
	checkList(t, first)
	for _, want := range []string{
		`"pkg:golang/example.org/m@v1.0.0%2Bincompatible"`, `"pkg:golang/std@1.99.1"`, `"expression": "MIT AND ISC"`, `"expression": "BSD-3-Clause"`,
		`"go:build:GOARCH"`, hex.EncodeToString(binary[:]), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
	} {
		if !strings.Contains(string(first), want) {
			t.Errorf("no %s in %s", want, first)
		}
	}
	for _, unwanted := range []string{"serialNumber", "timestamp"} {
		if strings.Contains(string(first), unwanted) {
			t.Errorf("the list has a %s", unwanted)
		}
	}
	if second, err := materials(info(func(*debug.Module) {}), binary, notice); err != nil || !bytes.Equal(first, second) {
		t.Errorf("%v, the second list differs: %s", err, second)
	}
	for want, change := range map[string]func(*debug.Module){
		"is replaced":  func(d *debug.Module) { d.Replace = &debug.Module{Path: "../m"} },
		"make notice":  func(d *debug.Module) { d.Version = "v1.0.1" },
		"the checksum": func(d *debug.Module) { d.Sum = "" },
	} {
		if _, err := materials(info(change), binary, notice); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// TestRelease_Refused expects an error, and no file, for a folder that is no clone and for a clone with changes.
func TestRelease_Refused(t *testing.T) {
	bare, changed := t.TempDir(), t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "git", "init", "-q", changed).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.WriteFile(filepath.Join(changed, "new.go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{bare: "is built from a clone", changed: "the working tree has changes"} {
		t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(dir))
		out := filepath.Join(t.TempDir(), "out")
		if _, err := release(t.Context(), dir, out); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a refused release writes files: %v", err)
		}
	}
}

// checkList checks a list of modules against the schema of CycloneDX, which its Go module has.
func checkList(t *testing.T, text []byte) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go")
	var reason bytes.Buffer
	cmd.Stderr = &reason
	dir, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, &reason)
	}
	compiler := jsonschema.NewCompiler()
	for url, file := range map[string]string{
		"http://cyclonedx.org/schema/bom-1.6.schema.json":  "bom-1.6.schema.json",
		"http://cyclonedx.org/schema/spdx.schema.json":     "spdx.schema.json",
		"http://cyclonedx.org/schema/jsf-0.82.schema.json": "jsf-0.82.schemax.json",
	} {
		b, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "schema", file))
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if err := compiler.AddResource(url, doc); err != nil {
			t.Fatal(err)
		}
	}
	schema, err := compiler.Compile("http://cyclonedx.org/schema/bom-1.6.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(doc); err != nil {
		t.Errorf("not CycloneDX 1.6: %v", err)
	}
}
