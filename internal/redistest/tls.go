package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/leaselimit/leaselimit/internal/childproc"
	"github.com/redis/go-redis/v9"
)

// Files in the folder of a server with TLS, in which it runs.
const (
	certFile = "cert.pem"
	keyFile  = "key.pem"
)

// WithTLS lets the server speak TLS as well, on a port of its own, by a
// certificate for its address that is made for it and that nobody trusts. The
// harness itself goes on in plain text; see [Server.OverTLS] for clients.
func WithTLS() Option {
	return func(sp *spec) { sp.tls = true }
}

// OverTLS is an option of [Server.Client]: the client speaks TLS to a server
// that was started [WithTLS], and trusts its certificate. Options after it may
// change TLSConfig.
func (s *Server) OverTLS(o *redis.Options) {
	o.Addr = net.JoinHostPort(host, strconv.Itoa(s.tlsPort))
	o.TLSConfig = &tls.Config{RootCAs: s.trust, MinVersion: tls.VersionTLS12}
}

// prepareTLS makes the server's certificate and takes its other port.
func (s *Server) prepareTLS() error {
	cert, key, err := newCertificate()
	if err != nil {
		return err
	}
	s.trust = x509.NewCertPool()
	s.trust.AppendCertsFromPEM(cert)
	err = errors.Join(
		os.WriteFile(filepath.Join(s.dir, certFile), cert, 0o600),
		os.WriteFile(filepath.Join(s.dir, keyFile), key, 0o600),
	)
	if err == nil {
		s.tlsPort, err = childproc.Ports.Take()
	}
	return err
}

// newCertificate returns a certificate for host that is signed by its own key,
// and that key, both as PEM.
func newCertificate() (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.ParseIP(host)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return nil, nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), nil
}
