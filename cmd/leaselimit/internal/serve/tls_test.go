package serve

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// certificate is one for 127.0.0.1, in files, and who trusts it.
func certificate(t *testing.T) (certFile, keyFile string, trust *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	trust = x509.NewCertPool()
	require.True(t, trust.AppendCertsFromPEM(cert))
	return write(t, string(cert)), write(t, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))), trust
}

func TestTLS(t *testing.T) {
	cert, key, trust := certificate(t)
	g := start(t, oneClass("{capacity: 1, refill: 0, store_timeout: 10s}"), "-tls-cert", cert, "-tls-key", key)
	_, err := g.try(0, descriptor("tenant", "acme"))
	require.Equal(t, codes.Unavailable, status.Code(err), "plain text is not answered")

	cc, err := grpc.NewClient(g.cc.Target(), grpc.WithTransportCredentials(credentials.NewClientTLSFromCert(trust, "")))
	require.NoError(t, err)
	defer cc.Close()
	g.client = rls.NewRateLimitServiceClient(cc)
	require.Equal(t, ok, g.ask(0, descriptor("tenant", "acme")).GetOverallCode())
	require.Equal(t, over, g.ask(0, descriptor("tenant", "acme")).GetOverallCode())

	code, _ := g.get("/healthz")
	require.Equal(t, http.StatusOK, code, "metrics and health stay plain text")
}
