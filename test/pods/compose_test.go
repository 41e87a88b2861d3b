//go:build lab

package pods

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"sluice/test/gen"
	"sluice/test/lab"
	"sluice/test/tablelog"
)

// composeService is the part of a service of Docker Compose that decides how its container runs.
type composeService struct {
	Environment map[string]string
	Volumes     []string
	ReadOnly    bool     `yaml:"read_only"`
	Tmpfs       []string `yaml:"tmpfs"`
	CapDrop     []string `yaml:"cap_drop"`
	SecurityOpt []string `yaml:"security_opt"`
	MemLimit    string   `yaml:"mem_limit"`
	HealthCheck struct{ Test []string }
}

// TestCompose runs the service connector of docker-compose.minio.yml by podman, with the options and the configuration of
// the file. Only the addresses of Kafka, MinIO and health are those of the lab. The health check must succeed, and
// records must arrive.
func TestCompose(t *testing.T) {
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docker-compose.minio.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var compose struct{ Services map[string]composeService }
	if err := yaml.Unmarshal(text, &compose); err != nil {
		t.Fatal(err)
	}
	s := compose.Services["connector"]
	health, err := lab.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"KAFKA_BROKER": shared.kafka.Addr, "S3_ENDPOINT": shared.minio.Endpoint, "HEALTH_LISTEN": health} {
		if s.Environment[name] == "" {
			t.Errorf("the service has no %s", name)
		}
		s.Environment[name] = value
	}
	const topic, records = "orders", 2000 // the topic and the bucket are those of config.minio.yaml
	bucket, err := lab.CreateBucket(t.Context(), shared.minio.Endpoint, "lake")
	if err != nil {
		t.Fatal(err)
	}
	if err := shared.kafka.CreateTopic(t.Context(), topic, 8, nil); err != nil {
		t.Fatal(err)
	}
	const container = "compose-connector"
	if _, err := shared.podman.Run(t.Context(), append([]string{"run", "--detach", "--name", container, "--network", "host"}, s.options(root)...)...); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if t.Failed() {
			log, err := shared.podman.Logs(t.Context(), container)
			t.Log(log, err)
		}
		if _, err := shared.podman.Run(t.Context(), "rm", "--force", "--time", "0", container); err != nil {
			t.Error(err)
		}
	}()
	if len(s.HealthCheck.Test) < 2 || s.HealthCheck.Test[0] != "CMD" {
		t.Fatalf("health check %q", s.HealthCheck.Test)
	}
	var failed error
	await(t, "the health check succeeds", func() (bool, error) {
		_, failed = shared.podman.Run(t.Context(), append([]string{"exec", container}, s.HealthCheck.Test[1:]...)...)
		return failed == nil, nil
	})
	p := gen.Producer{Brokers: []string{shared.kafka.Addr}, Topic: topic, Orders: gen.Orders{Seed: 3, Span: 1000}, Records: records, Codec: "lz4"}
	if err := p.Run(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	table := &tablelog.Log{Store: bucket, Table: "tables/" + topic}
	await(t, fmt.Sprintf("the table has %d rows", records), func() (bool, error) {
		commits, err := table.Read(t.Context())
		return tablelog.Rows(commits) >= records, err
	})
}

// options returns podman's options for the service, and the image.
func (s composeService) options(root string) (args []string) {
	if s.ReadOnly {
		args = append(args, "--read-only", "--read-only-tmpfs=false")
	}
	lists := map[string][]string{"--tmpfs": s.Tmpfs, "--cap-drop": s.CapDrop, "--security-opt": s.SecurityOpt, "--memory": {s.MemLimit}}
	for option, values := range lists {
		for _, value := range values {
			args = append(args, option, value)
		}
	}
	for name, value := range s.Environment {
		value = regexp.MustCompile(`\$\{[A-Z_]+:-([^}]*)\}`).ReplaceAllString(value, "$1")
		args = append(args, "--env", name+"="+value)
	}
	for _, volume := range s.Volumes {
		args = append(args, "--volume", strings.Replace(volume, "./", root+"/", 1))
	}
	return append(args, image)
}
