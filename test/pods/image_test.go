//go:build lab

package pods

import (
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sluice/test/lab"
)

const (
	image   = "localhost/sluice:lab"
	version = "v0.0.1-lab"
	// maxBinary is the size that the binary may have, in bytes.
	maxBinary = 80 << 20
)

// buildImage builds the Dockerfile. No registry can be reached, so an image with this machine's Go takes the place of
// golang. The sources, the commands and the final image are those of the Dockerfile.
func buildImage(ctx context.Context, dir string) error {
	root, err := lab.Root()
	if err != nil {
		return err
	}
	if err := writeBase(ctx, dir); err != nil {
		return err
	}
	const base = "localhost/golang:lab"
	if err := shared.podman.Build(ctx, base, dir); err != nil {
		return err
	}
	file, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		return err
	}
	from := regexp.MustCompile(`(?m)^FROM (golang:\S+) AS build$`).FindSubmatch(file)
	if from == nil {
		return errors.New("the Dockerfile has no stage build from golang")
	}
	options := []string{"--build-arg", "VERSION=" + version, "--build-context", string(from[1]) + "=container-image://" + base}
	for variable, at := range map[string]string{"GOROOT": "/usr/local/go:ro", "GOMODCACHE": "/go/pkg/mod", "GOCACHE": "/root/.cache/go-build"} {
		folder, err := goEnv(ctx, variable)
		if err != nil {
			return err
		}
		options = append(options, "--volume", folder+":"+at)
	}
	return shared.podman.Build(ctx, image, root, options...)
}

func goEnv(ctx context.Context, variable string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", variable).Output()
	if err != nil {
		return "", fmt.Errorf("go env %s: %w", variable, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// writeBase writes the folder of an image with the programs that the Dockerfile's stage build runs, except Go, which is
// mounted.
func writeBase(ctx context.Context, dir string) error {
	files := map[string]string{} // the place in the image, by the place on this machine
	const authorities = "/etc/ssl/certs/ca-certificates.crt"
	files[authorities] = authorities
	library := regexp.MustCompile(`/\S+`)
	for _, program := range []string{"sh", "mkdir", "cp"} {
		path, err := exec.LookPath(program)
		if err != nil {
			return err
		}
		files[path] = "/bin/" + program
		libraries, err := exec.CommandContext(ctx, "ldd", path).Output()
		if err != nil {
			return fmt.Errorf("ldd %s: %w", path, err)
		}
		for _, file := range library.FindAllString(string(libraries), -1) {
			files[file] = file
		}
	}
	for file, place := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, "files", place)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, content, info.Mode().Perm())); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "files", "tmp"), 0o777); err != nil {
		return err
	}
	lines := []string{"FROM scratch", "COPY files /", "ENV PATH=/usr/local/go/bin:/usr/bin:/bin GOPATH=/go HOME=/root GOTOOLCHAIN=local"}
	for _, variable := range []string{"GOPROXY", "GOSUMDB", "GONOSUMDB"} {
		value, err := goEnv(ctx, variable)
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("ENV %s=%q", variable, value))
	}
	return os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(strings.Join(lines, "\n")+"\n"), 0o644)
}

// TestImage lists what the image contains: one static binary, CA certificates, the name of its user and an empty folder
// for temporary files. There is no shell.
func TestImage(t *testing.T) {
	root, err := shared.podman.Run(t.Context(), "image", "mount", image)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]fs.FileMode{
		"connector": 0o755, "etc": fs.ModeDir | 0o755, "etc/passwd": 0o644, "etc/ssl": fs.ModeDir | 0o755, "etc/ssl/certs": fs.ModeDir | 0o755,
		"etc/ssl/certs/ca-certificates.crt": 0o644, "tmp": fs.ModeDir | fs.ModeSticky | 0o777,
	}
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		t.Logf("%v %9d /%s", info.Mode(), info.Size(), name)
		mode, known := want[name]
		delete(want, name)
		if !known || info.Mode() != mode {
			t.Errorf("/%s has mode %v, want %v", name, info.Mode(), mode)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range want {
		t.Errorf("/%s is missing", name)
	}
	checkBinary(t, filepath.Join(root, "connector"))
	if _, err := shared.podman.Run(t.Context(), "image", "unmount", image); err != nil {
		t.Error(err)
	}

	text, err := shared.podman.Run(t.Context(), "image", "inspect", image)
	if err != nil {
		t.Fatal(err)
	}
	var meta []struct {
		Config struct {
			User            string
			Entrypoint, Cmd []string
		}
		HealthCheck struct{ Test []string } `json:"Healthcheck"`
	}
	if err := json.Unmarshal([]byte(text), &meta); err != nil || len(meta) != 1 {
		t.Fatal(err, len(meta))
	}
	if c := meta[0].Config; c.User != "65532:65532" || strings.Join(append(c.Entrypoint, c.Cmd...), " ") != "/connector run --config /etc/sluice/config.yaml" {
		t.Errorf("it runs %q %q as %s", c.Entrypoint, c.Cmd, c.User)
	}
	if probe := strings.Join(meta[0].HealthCheck.Test, " "); probe != "CMD /connector probe live --config /etc/sluice/config.yaml" {
		t.Errorf("its health check is %q", probe)
	}
	locked := []string{"run", "--rm", "--network", "none", "--read-only", "--read-only-tmpfs=false", "--cap-drop", "all", "--memory", "256m"}
	out, err := shared.podman.Run(t.Context(), append(locked, image, "version")...)
	if err != nil || !strings.Contains(out, version) {
		t.Errorf("connector version: %v: %s", err, out)
	}
	for _, shell := range []string{"sh", "/bin/sh", "/bin/bash", "/busybox/sh"} {
		if out, err := shared.podman.Run(t.Context(), append(locked, "--entrypoint", shell, image, "-c", "true")...); err == nil {
			t.Errorf("%s runs: %s", shell, out)
		}
	}
}

// checkBinary expects a static binary without debug information that is not larger than [maxBinary].
func checkBinary(t *testing.T, path string) {
	t.Helper()
	binary, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = binary.Close() }()
	for _, p := range binary.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the binary needs a dynamic linker")
		}
	}
	if binary.Section(".debug_info") != nil || binary.Section(".symtab") != nil {
		t.Error("the binary has debug information")
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > maxBinary {
		t.Errorf("the binary has %d bytes, at most %d are expected", info.Size(), maxBinary)
	}
	t.Logf("the binary has %.1f MB", float64(info.Size())/1e6)
}
