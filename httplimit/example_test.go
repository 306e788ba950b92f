package httplimit_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/httplimit"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
)

// The tenant comes from what an authentication middleware found out, never from a header that a client may set.
func ExampleMiddleware() {
	lim, err := leaselimit.New(membucket.New(), leaselimit.Config{ // in a service: redisbucket.New(rdb)
		Limits:       quota.Fixed(quota.PerMinute(3, 2)),
		StoreTimeout: time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer lim.Close(context.Background()) //nolint:errcheck // buckets in memory

	type identity struct{}
	authenticate := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx := context.WithValue(r.Context(), identity{}, "acme") // once the token is verified
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
	tenant := func(r *http.Request) (string, error) {
		name, _ := r.Context().Value(identity{}).(string)
		return name, nil // no name is no tenant: 401
	}
	isHealthCheck := func(r *http.Request) bool { return r.URL.Path == "/healthz" }

	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	limit := httplimit.Middleware(lim, tenant, httplimit.WithExempt(isHealthCheck))
	srv := httptest.NewServer(authenticate(limit(mux)))
	defer srv.Close()

	for _, path := range []string{"/", "/", "/", "/healthz"} {
		resp, err := srv.Client().Get(srv.URL + path) //nolint:noctx // of an example
		if err != nil {
			log.Fatal(err)
		}
		resp.Body.Close() //nolint:errcheck // not read
		fmt.Println(resp.Status)
		for _, name := range []string{"RateLimit-Policy", "RateLimit", "Retry-After"} {
			if value := resp.Header.Get(name); value != "" {
				fmt.Println("   ", name+":", value)
			}
		}
	}
	// Output:
	// 200 OK
	//     RateLimit-Policy: "default";q=2;w=40
	//     RateLimit: "default";r=1;t=20
	// 200 OK
	//     RateLimit-Policy: "default";q=2;w=40
	//     RateLimit: "default";r=0;t=20
	// 429 Too Many Requests
	//     RateLimit-Policy: "default";q=2;w=40
	//     RateLimit: "default";r=0;t=20
	//     Retry-After: 20
	// 200 OK
}

// The first answer is 429. The client waits for a second and a little more, and sends the body again.
func ExampleNewTransport() {
	calls := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls++; calls == 1 {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "not now", http.StatusTooManyRequests)
			return
		}
		_, _ = io.Copy(w, r.Body)
	}))
	defer srv.Close()

	client := &http.Client{Transport: httplimit.NewTransport(http.DefaultTransport), Timeout: time.Minute}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPut, srv.URL, strings.NewReader("the body"))
	if err != nil {
		log.Fatal(err)
	}
	start := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Printf("%s: %q\n", resp.Status, body)
	fmt.Println("waited:", time.Since(start) > time.Second)
	// Output:
	// 200 OK: "the body"
	// waited: true
}
