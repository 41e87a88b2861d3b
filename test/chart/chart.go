// Package chart renders the Helm chart in deploy/chart. It is a module of its own, because Helm and the types of
// Kubernetes are no dependencies of the connector.
package chart

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

// Render renders the chart in the folder dir as `helm template NAME` does, and returns the objects as YAML, in the order
// of their files. values is YAML, too. An error names a value that values.schema.json refuses.
func Render(dir, name, values string) (string, error) {
	c, err := loader.Load(dir)
	if err != nil {
		return "", fmt.Errorf("load the chart: %w", err)
	}
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return "", fmt.Errorf("read the values: %w", err)
	}
	all, err := chartutil.ToRenderValues(c, given, chartutil.ReleaseOptions{Name: name, Namespace: "default", IsInstall: true}, nil)
	if err != nil {
		return "", fmt.Errorf("check the values: %w", err)
	}
	files, err := engine.Engine{Strict: true}.Render(c, all)
	if err != nil {
		return "", fmt.Errorf("render the chart: %w", err)
	}
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".yaml") && strings.TrimSpace(files[name]) != "" {
			fmt.Fprintf(&out, "---\n%s\n", strings.TrimSpace(files[name]))
		}
	}
	return out.String(), nil
}
