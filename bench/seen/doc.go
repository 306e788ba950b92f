// Package seen looks at what operators look at: the debug page in a real browser, the dashboard and the alerts in a real Prometheus.
// It has only tests.
package seen
