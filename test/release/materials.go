package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// materials returns the list of what a binary links (SBOM), in the format of CycloneDX 1.6: the modules that its build
// info names, with their checksums and the licences that NOTICE has for them, and the standard library. It has no time
// and no serial number, so the same binary gives the same list.
func materials(info *debug.BuildInfo, sum [sha256.Size]byte, notice string) ([]byte, error) {
	licences := licencesOf(notice)
	binary := cdx.Component{
		BOMRef: "connector", Type: cdx.ComponentTypeApplication, Name: "connector", Version: info.Main.Version,
		Licenses: expression("Apache-2.0"), Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
		Properties: &[]cdx.Property{},
	}
	for _, s := range info.Settings { // -compiler, GOARCH, vcs.revision and the like: all that makes one build differ from another
		*binary.Properties = append(*binary.Properties, cdx.Property{Name: "go:build:" + s.Key, Value: s.Value})
	}
	goVersion, _, _ := strings.Cut(strings.TrimPrefix(info.GoVersion, "go"), " ")
	components := []cdx.Component{{Name: "std", Version: goVersion, Licenses: expression(licences["Go standard library"])}}
	for _, d := range info.Deps {
		if d.Replace != nil {
			return nil, fmt.Errorf("module %s is replaced in go.mod: a release links published modules only", d.Path)
		}
		licence, ok := licences[d.Path+" "+d.Version]
		if !ok {
			return nil, fmt.Errorf("NOTICE does not have module %s %s: run make notice", d.Path, d.Version)
		}
		hash, err := moduleHash(d.Sum)
		if err != nil {
			return nil, fmt.Errorf("module %s: %w", d.Path, err)
		}
		components = append(components, cdx.Component{Name: d.Path, Version: d.Version, Licenses: expression(licence), Hashes: &[]cdx.Hash{hash}})
	}
	refs := make([]string, len(components))
	for i := range components {
		c := &components[i]
		c.Type, c.Scope = cdx.ComponentTypeLibrary, cdx.ScopeRequired
		c.PackageURL = packageURL(c.Name, c.Version)
		c.BOMRef, refs[i] = c.PackageURL, c.PackageURL
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &binary}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: binary.BOMRef, Dependencies: &refs}}
	var b bytes.Buffer
	err := cdx.NewBOMEncoder(&b, cdx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false).EncodeVersion(bom, cdx.SpecVersion1_6)
	return b.Bytes(), err
}

// licencesOf returns the licences that NOTICE has, by module and version.
func licencesOf(notice string) map[string]string {
	line := regexp.MustCompile(`^(Go standard library|\S+ v\S+)  +(\S.*)$`)
	all := map[string]string{}
	for text := range strings.Lines(notice) {
		if m := line.FindStringSubmatch(strings.TrimRight(text, "\n")); m != nil {
			all[m[1]] = m[2]
		}
	}
	return all
}

func expression(licence string) *cdx.Licenses { return &cdx.Licenses{{Expression: licence}} }

// moduleHash returns the checksum of a module in go.sum, which is the SHA-256 of the list of its files.
func moduleHash(sum string) (cdx.Hash, error) {
	text, ok := strings.CutPrefix(sum, "h1:")
	raw, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(raw) != sha256.Size {
		return cdx.Hash{}, fmt.Errorf("the checksum %q in its build info is none of go.sum", sum)
	}
	return cdx.Hash{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(raw)}, nil
}

// packageURL returns the package URL of a module. Only a plus sign needs an escape in the versions of modules.
func packageURL(path, version string) string {
	return "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
}
