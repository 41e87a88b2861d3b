// Command release builds what a release publishes: for each platform an archive with the static binary and a list of
// its modules, and the checksums of all files.
//
//	go run ./test/release [-out dist/release] [-from FOLDER]
//
// The same commit and the same version of Go give the same bytes, on each machine and in each folder: binaries are built
// with -trimpath, and archives and lists have no time of the build, no user and no random number. The version is that
// of the commit, as Go writes it into the binary. The command refuses a working tree with changes and a folder that is
// no clone, because their binaries would not say what they were built from.
package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// tags are the build tags of a release. TestTags compares them with the Makefile.
const tags = "grpcnotrace"

// sumsFile is the name of the file with the checksums, in the format of sha256sum.
const sumsFile = "SHA256SUMS"

// platform is what a binary is built for.
type platform struct{ system, arch string }

// platforms are the platforms of a release.
var platforms = [...]platform{{"linux", "amd64"}, {"linux", "arm64"}}

// packed are the files of the repository that an archive has beside the binary.
var packed = [...]string{"CHANGELOG.md", "LICENSE", "NOTICE", "README.md", "THIRD_PARTY_LICENSES", "config.yaml"}

func main() {
	out := flag.String("out", filepath.Join("dist", "release"), "the folder for the files; what it has is deleted")
	from := flag.String("from", ".", "the clone to build from")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	sums, err := release(ctx, *from, *out)
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		stop()
		os.Exit(1)
	}
	fmt.Print(sums)
}

// release builds the files of a release from the clone in the folder from, into the folder out. It returns the content
// of SHA256SUMS.
func release(ctx context.Context, from, out string) (sums string, err error) {
	if err := clean(ctx, from); err != nil {
		return "", err
	}
	from, err = filepath.Abs(from)
	if err != nil {
		return "", err
	}
	if out, err = filepath.Abs(out); err != nil {
		return "", err
	}
	if err := errors.Join(os.RemoveAll(out), os.MkdirAll(out, 0o755)); err != nil {
		return "", err
	}
	for _, p := range platforms {
		if err := p.publish(ctx, from, out); err != nil {
			return "", fmt.Errorf("%s/%s: %w", p.system, p.arch, err)
		}
	}
	if sums, err = checksums(out); err != nil {
		return "", err
	}
	return sums, os.WriteFile(filepath.Join(out, sumsFile), []byte(sums), 0o644)
}

// clean returns an error unless the folder is a clone without changes.
func clean(ctx context.Context, dir string) error {
	cmd := exec.CommandContext(ctx, "git", "status", "--porcelain")
	cmd.Dir = dir
	changed, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("git status in %s: %w: a release is built from a clone", dir, err)
	}
	if len(changed) > 0 {
		return fmt.Errorf("the working tree has changes, so no commit names what would be built: commit them, or use make build\n%s", changed)
	}
	return nil
}

// publish builds the binary and writes its archive and its list of modules.
func (p platform) publish(ctx context.Context, from, out string) error {
	scratch, err := os.MkdirTemp("", "sluice-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }() // a temporary folder
	binary := filepath.Join(scratch, "connector")
	if err := p.build(ctx, from, binary, "-buildvcs=true"); err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	if info.Main.Version == "" || info.Main.Version == "(devel)" {
		return fmt.Errorf("go found no commit in %s: build from a clone, not from a worktree or a copy of the files", from)
	}
	if strings.Contains(info.GoVersion, "X:") {
		return fmt.Errorf("go is %s: unset GOEXPERIMENT, also in go env", info.GoVersion)
	}
	name := "connector_" + info.Main.Version + "_" + p.system + "_" + p.arch
	content, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	archive, err := pack(name, from, content)
	if err != nil {
		return err
	}
	notice, err := os.ReadFile(filepath.Join(from, "NOTICE"))
	if err != nil {
		return err
	}
	list, err := materials(info, sha256.Sum256(content), string(notice))
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(out, name+".tar.gz"), archive, 0o644), os.WriteFile(filepath.Join(out, name+".cdx.json"), list, 0o644))
}

// build builds the binary of a platform from the folder dir. The environment of the caller changes nothing in it.
func (p platform) build(ctx context.Context, dir, binary string, more ...string) error {
	args := slices.Concat([]string{"build", "-trimpath", "-tags", tags, "-ldflags", "-s -w", "-o", binary}, more, []string{"./cmd/connector"})
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.system, "GOARCH="+p.arch, "GOAMD64=v1", "GOARM64=v8.0",
		"GOFLAGS=-mod=readonly", "GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, text)
	}
	return nil
}

// pack returns an archive: the binary and the files of packed, in a folder with this name. The archive has no times and
// no users.
func pack(name, from string, binary []byte) ([]byte, error) {
	var b bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(zipped)
	add := func(file string, mode int64, content []byte) error {
		h := &tar.Header{Name: name + "/" + file, Mode: mode, Size: int64(len(content)), ModTime: time.Unix(0, 0), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err := w.Write(content)
		return err
	}
	if err := add("connector", 0o755, binary); err != nil {
		return nil, err
	}
	for _, file := range packed {
		content, err := os.ReadFile(filepath.Join(from, file))
		if err != nil {
			return nil, err
		}
		if err := add(file, 0o644, content); err != nil {
			return nil, err
		}
	}
	err = cmp.Or(w.Close(), zipped.Close())
	return b.Bytes(), err
}

// checksums returns the checksums of all files in a folder, in the order of their names.
func checksums(dir string) (string, error) {
	var b strings.Builder
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		f, err := os.Open(filepath.Join(dir, path))
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // read only
		sum := sha256.New()
		if _, err := io.Copy(sum, f); err != nil {
			return err
		}
		fmt.Fprintf(&b, "%x  %s\n", sum.Sum(nil), path)
		return nil
	})
	return b.String(), err
}
