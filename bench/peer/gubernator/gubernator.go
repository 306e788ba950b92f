//go:build gubernator

// Package gubernator is a peer in a package of its own, behind a build tag: it links the clients of Kubernetes and etcd, whose
// build takes longer than all the rest.
package gubernator

import (
	"errors"

	"github.com/gubernator-io/gubernator/v2"
	"github.com/leaselimit/leaselimit/bench/peer"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
)

// InProcess is one instance that owns every key, asked by a call of Go: no network, and none of its batching.
var InProcess = peer.Peer{Name: "gubernator", New: inProcess}

func inProcess(w peer.Work) (*peer.Limiter, error) {
	quiet := logrus.New()
	quiet.SetLevel(logrus.FatalLevel)
	node, err := gubernator.NewV1Instance(gubernator.Config{
		GRPCServers: []*grpc.Server{grpc.NewServer()}, // never served; required
		CacheSize:   2*w.Tenants + 1000,
		Logger:      quiet,
	})
	if err != nil {
		return nil, err
	}
	node.SetPeers([]gubernator.PeerInfo{{GRPCAddress: "127.0.0.1:1", IsOwner: true}})
	limit := int64(1)
	if w.Allow {
		limit = peer.Plenty
	}
	names := w.Names()
	return &peer.Limiter{
		Decide: func(i int) (bool, error) {
			r, err := node.GetRateLimits(peer.Ctx, &gubernator.GetRateLimitsReq{Requests: []*gubernator.RateLimitReq{{
				Name: "bench", UniqueKey: names[i], Algorithm: gubernator.Algorithm_TOKEN_BUCKET,
				Limit: limit, Duration: peer.Long.Milliseconds(), Hits: 1,
			}}})
			if err != nil {
				return false, err
			}
			if msg := r.Responses[0].Error; msg != "" {
				return false, errors.New(msg)
			}
			return r.Responses[0].Status == gubernator.Status_UNDER_LIMIT, nil
		},
		Close: node.Close,
	}, nil
}
