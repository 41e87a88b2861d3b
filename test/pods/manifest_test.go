//go:build lab

package pods

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"sluice/test/lab"
)

// deployment is the part of a rendered Deployment that the kubelet and the Deployment's controller work by.
type deployment struct {
	Spec struct {
		Replicas int
		Strategy struct {
			RollingUpdate struct {
				MaxSurge       int `yaml:"maxSurge"`
				MaxUnavailable int `yaml:"maxUnavailable"`
			} `yaml:"rollingUpdate"`
		}
		Template struct{ Spec podSpec }
	}
}

type podSpec struct {
	TerminationGracePeriodSeconds int `yaml:"terminationGracePeriodSeconds"`
	Containers                    []struct {
		Ports []struct {
			Name          string
			ContainerPort int `yaml:"containerPort"`
		}
		StartupProbe   probe `yaml:"startupProbe"`
		ReadinessProbe probe `yaml:"readinessProbe"`
		LivenessProbe  probe `yaml:"livenessProbe"`
	}
}

// probe is a probe of a container.
type probe struct {
	HTTPGet struct {
		Path, Port string
	} `yaml:"httpGet"`
	InitialDelaySeconds int `yaml:"initialDelaySeconds"`
	PeriodSeconds       int `yaml:"periodSeconds"`
	TimeoutSeconds      int `yaml:"timeoutSeconds"`
	FailureThreshold    int `yaml:"failureThreshold"`
}

// port returns the number of the port that a probe names.
func (s podSpec) port(p probe) (int, error) {
	for _, port := range s.Containers[0].Ports {
		if port.Name == p.HTTPGet.Port {
			return port.ContainerPort, nil
		}
	}
	return 0, fmt.Errorf("the container has no port %q", p.HTTPGet.Port)
}

// manifest is what the chart renders for one member.
type manifest struct {
	deployment
	// play is the text for `podman kube play`: the ConfigMap and the Deployment's pod.
	play string
}

// render renders the chart with Helm's Go module and makes a manifest of it. The pod keeps everything that the chart
// says, except what podman cannot do: host networks have no ports to map, and the kubelet runs the probes.
func render(t *testing.T, name, values string) manifest {
	t.Helper()
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", "./render", filepath.Join(root, "deploy", "chart"), name)
	var out, text bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = filepath.Join(root, "test", "chart"), strings.NewReader(values), &out, &text
	if err := cmd.Run(); err != nil {
		t.Fatalf("render the chart: %v: %s", err, text.String())
	}
	var m manifest
	var play []string
	for docs := yaml.NewDecoder(&out); ; {
		var doc yaml.Node
		if err := docs.Decode(&doc); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		var object map[string]any
		if err := doc.Decode(&object); err != nil {
			t.Fatal(err)
		}
		switch object["kind"] {
		case "ConfigMap":
		case "Deployment":
			if err := doc.Decode(&m.deployment); err != nil {
				t.Fatal(err)
			}
			object = podOf(name, object)
		default:
			continue // for the API server, not for the kubelet
		}
		text, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		play = append(play, string(text))
	}
	if len(play) != 2 || len(m.Spec.Template.Spec.Containers) != 1 {
		t.Fatalf("%d objects to play, %d containers", len(play), len(m.Spec.Template.Spec.Containers))
	}
	m.play = strings.Join(play, "---\n")
	return m
}

// podOf returns the pod of a Deployment as an object of its own.
func podOf(name string, deployment map[string]any) map[string]any {
	template := deployment["spec"].(map[string]any)["template"].(map[string]any)
	metadata, spec := template["metadata"].(map[string]any), template["spec"].(map[string]any)
	metadata["name"] = name
	delete(metadata, "annotations") // podman takes short ones only
	spec["hostNetwork"] = true
	spec["restartPolicy"] = "Never" // the test restarts containers, so that it sees why
	delete(spec, "topologySpreadConstraints")
	container := spec["containers"].([]any)[0].(map[string]any)
	for _, key := range []string{"ports", "startupProbe", "readinessProbe", "livenessProbe"} {
		delete(container, key)
	}
	// podman has one volume of each name; pods share it.
	for _, list := range []any{container["volumeMounts"], spec["volumes"]} {
		for _, v := range list.([]any) {
			if v := v.(map[string]any); v["name"] == "temp" {
				v["name"] = "temp-" + name
			}
		}
	}
	return map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
}
