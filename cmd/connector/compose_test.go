package main

import (
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"sluice/internal/config"
)

// composeFile is the part of the Compose specification that this test reads.
type composeFile struct {
	Services map[string]struct {
		Image string
		Build struct {
			Context string
			Inline  string `yaml:"dockerfile_inline"`
		}
		Ports       []string
		Environment map[string]string
		Command     []string
		Volumes     []string
		HealthCheck struct{ Test []string }
		Profiles    []string
		DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
	}
	Volumes map[string]any
}

// TestComposeFitsConfig: the services in docker-compose.minio.yml have the addresses, credentials, topic and bucket
// that config.minio.yaml names. The test starts neither, because not every machine can run containers.
func TestComposeFitsConfig(t *testing.T) {
	data, err := os.ReadFile("../../docker-compose.minio.yml")
	if err != nil {
		t.Fatal(err)
	}
	var compose composeFile
	if err := yaml.Unmarshal(data, &compose); err != nil {
		t.Fatal(err)
	}
	cfg, problems := config.Load("../../config.minio.yaml", noEnv)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	kafka, minio, topic := compose.Services["kafka"], compose.Services["minio"], compose.Services["topic"]

	published := map[string]string{} // the port in the container, by the address on this machine
	for name, s := range compose.Services {
		image, version, _ := strings.Cut(s.Image, ":")
		if version == "" || version == "latest" {
			t.Errorf("%s: image %s is not pinned", name, image)
		}
		for line := range strings.Lines(s.Build.Inline) {
			if from, ok := strings.CutPrefix(line, "FROM "); ok && (!strings.Contains(from, ":") || strings.Contains(from, ":latest")) {
				t.Errorf("%s: %s is not pinned", name, line)
			}
		}
		for _, p := range s.Ports {
			parts := strings.Split(p, ":")
			if len(parts) != 3 || parts[0] != "127.0.0.1" {
				t.Errorf("%s: port %s is open to the network", name, p)
				continue
			}
			published[parts[0]+":"+parts[1]] = parts[2]
		}
		for _, v := range s.Volumes {
			volume, _, _ := strings.Cut(v, ":")
			if strings.HasPrefix(volume, "./") {
				continue // a file of the repository
			}
			if _, ok := compose.Volumes[volume]; !ok {
				t.Errorf("%s: volume %s is not declared", name, volume)
			}
		}
	}
	for name, s := range compose.Services {
		if name == "connector" {
			continue // TestComposeConnector
		}
		if len(s.HealthCheck.Test) == 0 && name != "topic" {
			t.Errorf("%s has no healthcheck", name)
		}
	}
	// Redis and Postgres run only if their profile is selected, at the addresses that comments in the file give.
	for name, said := range map[string]string{"redis": "redis://127.0.0.1:6379", "postgres": "postgres://sluice:sluice@127.0.0.1:5432/sluice"} {
		address, err := url.Parse(said)
		if err != nil {
			t.Fatal(err)
		}
		if s := compose.Services[name]; !slices.Equal(s.Profiles, []string{name}) || published[address.Host] != address.Port() || !strings.Contains(string(data), said) {
			t.Errorf("%s: profiles %v, published %v", name, s.Profiles, published)
		}
	}
	for key, want := range map[string]string{"POSTGRES_USER": "sluice", "POSTGRES_PASSWORD": "sluice", "POSTGRES_DB": "sluice"} {
		if got := withoutVariables(compose.Services["postgres"].Environment[key]); got != want {
			t.Errorf("%s is %s", key, got)
		}
	}

	if len(cfg.Kafka.Brokers) != 1 {
		t.Fatal(cfg.Kafka.Brokers)
	}
	broker := cfg.Kafka.Brokers[0]
	if port := published[broker]; !slices.Contains(strings.Split(kafka.Environment["KAFKA_LISTENERS"], ","), "HOST://:"+port) {
		t.Errorf("nothing listens behind %s, port %q", broker, port)
	}
	if !slices.Contains(strings.Split(kafka.Environment["KAFKA_ADVERTISED_LISTENERS"], ","), "HOST://"+broker) {
		t.Errorf("Kafka does not call itself %s", broker)
	}
	name, table := onlyTopic(t, cfg)
	if !slices.Contains(topic.Command, "--topic="+name) || topic.DependsOn["kafka"].Condition != "service_healthy" {
		t.Errorf("topic %s is not created", name)
	}
	if shipped := mustLoad(t, shipped, nil).Defaults.Schema; table.Schema != ordersDDL || shipped != ordersDDL {
		t.Errorf("schema %s, of config.yaml %s; the demo's orders have %s", table.Schema, shipped, ordersDDL)
	}

	endpoint, err := url.Parse(cfg.Storage.S3.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	port := published[endpoint.Host]
	if start := strings.Join(minio.Command, " "); port == "" || !strings.Contains(start, "--address :"+port) {
		t.Errorf("MinIO does not listen at %s: %s", endpoint, start)
	}
	if !strings.Contains(strings.Join(minio.HealthCheck.Test, " "), "http://"+net.JoinHostPort("127.0.0.1", port)+"/") {
		t.Errorf("the healthcheck asks elsewhere: %v", minio.HealthCheck.Test)
	}
	bucket, err := url.Parse(cfg.Storage.URL)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(minio.Command, " "), "mkdir -p /data/"+bucket.Host+" ") {
		t.Errorf("bucket %s is not created", bucket.Host)
	}
	if user := withoutVariables(minio.Environment["MINIO_ROOT_USER"]); user != string(cfg.Storage.S3.AccessKey) {
		t.Errorf("user %s, access_key %s", user, string(cfg.Storage.S3.AccessKey))
	}
	if password := withoutVariables(minio.Environment["MINIO_ROOT_PASSWORD"]); password != string(cfg.Storage.S3.SecretKey) {
		t.Error("password and secret_key differ")
	}
	if !cfg.Storage.S3.PathStyle {
		t.Error("MinIO needs path_style")
	}
}

// withoutVariables replaces each ${NAME:-value} by value, as Compose does if no variable is set.
func withoutVariables(text string) string {
	return regexp.MustCompile(`\$\{[A-Z_]+:-([^}]*)\}`).ReplaceAllString(text, "$1")
}

// TestComposeConnector: the service connector fits the other services and config.minio.yaml. test/pods runs it.
func TestComposeConnector(t *testing.T) {
	data, err := os.ReadFile("../../docker-compose.minio.yml")
	if err != nil {
		t.Fatal(err)
	}
	var compose composeFile
	if err := yaml.Unmarshal(data, &compose); err != nil {
		t.Fatal(err)
	}
	s := compose.Services["connector"]
	if !slices.Equal(s.Profiles, []string{"connector"}) || s.Build.Context != "." || !slices.Contains(s.Volumes, "./config.minio.yaml:/etc/sluice/config.yaml:ro") {
		t.Errorf("profiles %v, build %q, volumes %v", s.Profiles, s.Build.Context, s.Volumes)
	}
	for name, condition := range map[string]string{"kafka": "service_healthy", "topic": "service_completed_successfully", "minio": "service_healthy"} {
		if s.DependsOn[name].Condition != condition {
			t.Errorf("it does not wait for %s", name)
		}
	}
	cfg, problems := config.Load("../../config.minio.yaml", func(name string) (string, bool) {
		value, ok := s.Environment[name]
		return withoutVariables(value), ok
	})
	// It warns about http://, which stays on the network of the containers.
	if slices.ContainsFunc(problems, func(p config.Problem) bool { return !p.Warning }) {
		t.Fatal(problems)
	}
	kafka := compose.Services["kafka"].Environment
	if want := "INTERNAL://" + cfg.Kafka.Brokers[0]; !slices.Contains(strings.Split(kafka["KAFKA_ADVERTISED_LISTENERS"], ","), want) {
		t.Errorf("Kafka does not call itself %s", want)
	}
	if cfg.Storage.S3.Endpoint != "http://minio:9000" || !cfg.Storage.S3.InsecurePlaintext {
		t.Errorf("endpoint %s, plaintext %t", cfg.Storage.S3.Endpoint, cfg.Storage.S3.InsecurePlaintext)
	}
	if !slices.Equal(s.Ports, []string{"127.0.0.1:8080" + cfg.Health.Listen}) {
		t.Errorf("ports %v, health.listen %s", s.Ports, cfg.Health.Listen)
	}
	if got := strings.Join(s.HealthCheck.Test, " "); got != "CMD /connector probe ready --config /etc/sluice/config.yaml" {
		t.Errorf("healthcheck %s", got)
	}
}
