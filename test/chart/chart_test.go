// Package chart_test renders the Helm chart with many sets of values, and decodes each object strictly into its type.
package chart_test

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	keda "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigs "sigs.k8s.io/yaml"

	"sluice/test/chart"
)

var update = flag.Bool("update", false, "rewrite deploy/kubernetes from the chart")

const (
	chartDir  = "../../deploy/chart"
	manifests = "../../deploy/kubernetes/sluice.yaml"
)

// set is a set of values, and the kinds that it renders beside a ConfigMap, a Deployment and a Service.
type set struct {
	name, values string
	kinds        []string
}

// usual are the kinds of objects with the values of the chart that are not ConfigMap, Deployment or Service.
var usual = []string{"PodDisruptionBudget", "ServiceAccount"}

func sets() []set {
	with := func(more ...string) []string {
		return slices.Sorted(slices.Values(append(slices.Clone(usual), more...)))
	}
	return []set{
		{"defaults", ``, usual},
		{"one member", `replicas: 1`, usual},
		{"no account", `serviceAccount: {create: false}`, []string{"PodDisruptionBudget"}},
		{"an account that exists", `serviceAccount: {create: false, name: lake}`, []string{"PodDisruptionBudget"}},
		{"IRSA", `serviceAccount: {name: lake, annotations: {eks.amazonaws.com/role-arn: "arn:aws:iam::123456789012:role/sluice"}}`, usual},
		{"secrets", `{existingSecrets: [sluice-s3, sluice-kafka], config: {storage: {s3: {access_key_file: /etc/sluice/secrets/sluice-s3/access, secret_key_file: /etc/sluice/secrets/sluice-s3/secret}}}}`, usual},
		{"environment", `extraEnv: [{name: LOG_LEVEL, value: debug}, {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]`, usual},
		{"a slow drain", `drainSeconds: 50`, usual},
		{"another port", `healthPort: 9000`, usual},
		{"no budget for disruptions", `podDisruptionBudget: {enabled: false}`, []string{"ServiceAccount"}},
		{"half may be disrupted", `podDisruptionBudget: {maxUnavailable: "50%"}`, usual},
		{"network policy", `networkPolicy: {enabled: true, from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]}`, with("NetworkPolicy")},
		{"Prometheus Operator", `{serviceMonitor: {enabled: true, labels: {release: prometheus}}, prometheusRule: {enabled: true}}`, with("PrometheusRule", "ServiceMonitor")},
		{"dashboard", `dashboard: {enabled: true}`, with("ConfigMap")},
		{"KEDA", `keda: {enabled: true, topic: orders, maxReplicas: 16}`, with("ScaledObject")},
		{"placement", `{nodeSelector: {pool: lake}, tolerations: [{key: lake, operator: Exists}], priorityClassName: high, topologySpread: {enabled: false}, affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app.kubernetes.io/name: sluice}}}}]}}}`, usual},
		{"labels", `{podLabels: {team: data}, podAnnotations: {example.org/note: "a: b"}, imagePullSecrets: [{name: registry}], nameOverride: orders}`, usual},
		{
			"everything", `{keda: {enabled: true}, dashboard: {enabled: true}, serviceMonitor: {enabled: true}, prometheusRule: {enabled: true}, networkPolicy: {enabled: true}}`,
			with("ConfigMap", "NetworkPolicy", "PrometheusRule", "ScaledObject", "ServiceMonitor"),
		},
	}
}

// render renders the chart as `helm template sluice` does.
func render(values string) (string, error) { return chart.Render(chartDir, "sluice", values) }

// types are the Go types of all kinds that the chart may render.
func types() map[string]any {
	return map[string]any{
		"v1 ConfigMap": &core.ConfigMap{}, "v1 Service": &core.Service{}, "v1 ServiceAccount": &core.ServiceAccount{},
		"apps/v1 Deployment": &apps.Deployment{}, "policy/v1 PodDisruptionBudget": &policy.PodDisruptionBudget{},
		"networking.k8s.io/v1 NetworkPolicy":      &networking.NetworkPolicy{},
		"monitoring.coreos.com/v1 ServiceMonitor": &monitoring.ServiceMonitor{},
		"monitoring.coreos.com/v1 PrometheusRule": &monitoring.PrometheusRule{},
		"keda.sh/v1alpha1 ScaledObject":           &keda.ScaledObject{},
	}
}

// decode decodes all objects strictly: a field that the type of an object does not have is an error.
func decode(t *testing.T, text string) map[string][]any {
	t.Helper()
	objects := map[string][]any{}
	docs := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		var kind meta.TypeMeta
		if err := sigs.Unmarshal(doc, &kind); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		typ := types()[kind.APIVersion+" "+kind.Kind]
		if typ == nil {
			t.Fatalf("an object of unknown kind: %s %s", kind.APIVersion, kind.Kind)
		}
		object := reflect.New(reflect.TypeOf(typ).Elem()).Interface()
		if err := sigs.UnmarshalStrict(doc, object); err != nil {
			t.Errorf("%s: %v\n%s", kind.Kind, err, doc)
		}
		objects[kind.Kind] = append(objects[kind.Kind], object)
	}
}

func TestChart(t *testing.T) {
	for _, s := range sets() {
		t.Run(s.name, func(t *testing.T) {
			text, err := render(s.values)
			if err != nil {
				t.Fatal(err)
			}
			objects := decode(t, text)
			var kinds []string
			for kind, all := range objects {
				for range all {
					kinds = append(kinds, kind)
				}
			}
			slices.Sort(kinds)
			want := append([]string{"ConfigMap", "Deployment", "Service"}, s.kinds...)
			slices.Sort(want)
			if !slices.Equal(kinds, want) {
				t.Fatalf("kinds %v, want %v", kinds, want)
			}
			checkPod(t, objects)
			validate(t, objects)
		})
	}
}

// checkPod checks what must hold of each Deployment and of what points at its pods.
func checkPod(t *testing.T, objects map[string][]any) {
	t.Helper()
	d := objects["Deployment"][0].(*apps.Deployment)
	pod, c := d.Spec.Template, d.Spec.Template.Spec.Containers[0]
	matches := func(what string, selector map[string]string) {
		t.Helper()
		if len(selector) == 0 || !labels.SelectorFromSet(selector).Matches(labels.Set(pod.Labels)) {
			t.Errorf("%s selects %v, the pod has %v", what, selector, pod.Labels)
		}
	}
	matches("the Deployment", d.Spec.Selector.MatchLabels)
	service := objects["Service"][0].(*core.Service)
	matches("the Service", service.Spec.Selector)
	for _, o := range objects["PodDisruptionBudget"] {
		matches("the PodDisruptionBudget", o.(*policy.PodDisruptionBudget).Spec.Selector.MatchLabels)
	}
	for _, o := range objects["NetworkPolicy"] {
		matches("the NetworkPolicy", o.(*networking.NetworkPolicy).Spec.PodSelector.MatchLabels)
	}
	for _, o := range objects["ServiceMonitor"] {
		m := o.(*monitoring.ServiceMonitor)
		if !labels.SelectorFromSet(m.Spec.Selector.MatchLabels).Matches(labels.Set(service.Labels)) || m.Spec.Endpoints[0].Port != service.Spec.Ports[0].Name {
			t.Errorf("the ServiceMonitor finds no port of the Service: %+v", m.Spec)
		}
	}
	for _, o := range objects["ScaledObject"] {
		if target := o.(*keda.ScaledObject).Spec.ScaleTargetRef; target.Name != d.Name || d.Spec.Replicas != nil {
			t.Errorf("KEDA scales %q; the Deployment is %q with replicas %v", target.Name, d.Name, d.Spec.Replicas)
		}
	}
	for name, p := range map[string]*core.Probe{"live": c.LivenessProbe, "ready": c.ReadinessProbe, "startup": c.StartupProbe} {
		if p == nil || p.HTTPGet == nil || p.HTTPGet.Path != "/health/"+name || p.HTTPGet.Port.StrVal != c.Ports[0].Name || p.FailureThreshold < 1 {
			t.Errorf("probe %s: %+v", name, p)
		}
	}
	s := c.SecurityContext
	if !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) || !*pod.Spec.SecurityContext.RunAsNonRoot {
		t.Errorf("security context: %+v, %+v", s, pod.Spec.SecurityContext)
	}
	if *pod.Spec.AutomountServiceAccountToken {
		t.Error("the pod gets a token of Kubernetes")
	}
	volumes := map[string]bool{}
	for _, v := range pod.Spec.Volumes {
		volumes[v.Name] = true
	}
	for _, m := range c.VolumeMounts {
		if !volumes[m.Name] {
			t.Errorf("no volume for %s", m.Name)
		}
		delete(volumes, m.Name)
	}
	if len(volumes) > 0 {
		t.Errorf("volumes that are mounted nowhere: %v", volumes)
	}
	var drain struct {
		Shutdown struct{ Drain meta.Duration }
		Health   struct{ Listen string }
		TempDir  string `json:"temp_dir"`
	}
	if err := sigs.Unmarshal([]byte(config(objects)), &drain); err != nil {
		t.Fatal(err)
	}
	if grace := *pod.Spec.TerminationGracePeriodSeconds; float64(grace) != drain.Shutdown.Drain.Seconds()+10 {
		t.Errorf("the grace period is %d s, shutdown.drain %v", grace, drain.Shutdown.Drain)
	}
	if drain.Health.Listen != fmt.Sprintf(":%d", c.Ports[0].ContainerPort) {
		t.Errorf("health.listen is %s, the port %d", drain.Health.Listen, c.Ports[0].ContainerPort)
	}
	if !slices.ContainsFunc(c.VolumeMounts, func(m core.VolumeMount) bool { return m.MountPath == drain.TempDir && !m.ReadOnly }) {
		t.Errorf("temp_dir %s is no volume", drain.TempDir)
	}
}

// config returns the rendered config.yaml.
func config(objects map[string][]any) string {
	for _, o := range objects["ConfigMap"] {
		if text, ok := o.(*core.ConfigMap).Data["config.yaml"]; ok {
			return text
		}
	}
	return ""
}

// validate has the connector check the rendered configuration.
func validate(t *testing.T, objects map[string][]any) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(config(objects)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(connector, "validate", "--no-secrets", "--config", file).CombinedOutput(); err != nil {
		t.Errorf("connector validate: %v\n%s\n%s", err, out, config(objects))
	}
}

// connector is the binary that checks rendered configurations. TestMain builds it.
var connector string

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "sluice-chart-")
	if err == nil {
		connector = filepath.Join(dir, "connector")
		build := exec.Command("go", "build", "-o", connector, "./cmd/connector")
		build.Dir, build.Stderr = "../..", os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil && code == 0 {
		code = 1
	}
	os.Exit(code)
}

// TestChart_RefusesValues: wrong values are refused by the schema, and none is ignored.
func TestChart_RefusesValues(t *testing.T) {
	for values, want := range map[string]string{
		`replica: 3`:                           "replica",
		`replicas: -1`:                         "replicas",
		`resources: {limits: {memory: null}}`:  "memory",
		`config: {shutdown: {drain: 5s}}`:      "shutdown",
		`config: {temp_dir: /data}`:            "temp_dir",
		`config: {health: {listen: ":1"}}`:     "listen",
		`config: {health: {enabled: false}}`:   "enabled",
		`existingSecrets: [UPPER]`:             "existingSecrets",
		`image: {pullPolicy: Sometimes}`:       "pullPolicy",
		`livenessProbe: {failureThreshold: 0}`: "failureThreshold",
		`keda: {enabled: true, topic: ""}`:     "topic",
		`networkPolicy: {enabled: maybe}`:      "enabled",
	} {
		if _, err := render(values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", values, err)
		}
	}
}

// TestChart_ConfigRestartsMembers: a change of the configuration changes the annotation of the pods, and other values
// do not.
func TestChart_ConfigRestartsMembers(t *testing.T) {
	sum := func(values string) string {
		text, err := render(values)
		if err != nil {
			t.Fatal(err)
		}
		return decode(t, text)["Deployment"][0].(*apps.Deployment).Spec.Template.Annotations["checksum/config"]
	}
	before := sum(``)
	if changed := sum(`config: {defaults: {commit: {every: 30s}}}`); before == "" || changed == before {
		t.Errorf("the checksum stays %q", changed)
	}
	if same := sum(`replicas: 5`); same != before {
		t.Errorf("replicas change the checksum from %q to %q", before, same)
	}
}

// TestChart_RulesAreTheFile: the PrometheusRule has the groups of deploy/alerts.yaml.
func TestChart_RulesAreTheFile(t *testing.T) {
	text, err := render(`prometheusRule: {enabled: true}`)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile("../../deploy/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var want monitoring.PrometheusRuleSpec
	if err := sigs.UnmarshalStrict(file, &want); err != nil {
		t.Fatal(err)
	}
	got := decode(t, text)["PrometheusRule"][0].(*monitoring.PrometheusRule).Spec
	if len(want.Groups) == 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("%d groups, want %d", len(got.Groups), len(want.Groups))
	}
}

// TestDocs_Values: the blocks of values in docs/deploy.md render to objects whose configuration the connector accepts.
func TestDocs_Values(t *testing.T) {
	page, err := os.ReadFile("../../docs/deploy.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllSubmatch(page, -1)
	for _, block := range blocks {
		text, err := render(string(block[1]))
		if err != nil {
			t.Errorf("%v\n%s", err, block[1])
			continue
		}
		objects := decode(t, text)
		checkPod(t, objects)
		validate(t, objects)
	}
	if len(blocks) < 2 {
		t.Errorf("%d blocks found: are they still marked as yaml?", len(blocks))
	}
}

// TestManifests: deploy/kubernetes has what the chart renders with its own values. -update rewrites it.
func TestManifests(t *testing.T) {
	text, err := render(``)
	if err != nil {
		t.Fatal(err)
	}
	text = "# Plain manifests: what deploy/chart renders with its own values. Edit the ConfigMap, then kubectl apply -f sluice.yaml.\n" +
		strings.ReplaceAll(text, "app.kubernetes.io/managed-by: Helm", "app.kubernetes.io/managed-by: kubectl")
	if *update {
		if err := os.MkdirAll(filepath.Dir(manifests), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(manifests, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.ReadFile(manifests)
	if err != nil || !bytes.Equal(file, []byte(text)) {
		t.Errorf("%s is not what the chart renders (%v): go test -update", manifests, err)
	}
}
