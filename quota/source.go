package quota

import "context"

// A Source answers with the limit of a tenant. It is asked for every decision and must be safe for concurrent use, quick,
// and mindful of ctx.
//
// An error, or a limit that does not validate, admits nothing: the caller of the limiter gets the error.
type Source interface {
	Limit(ctx context.Context, tenant string) (Limit, error)
}

// SourceFunc is a function that is a [Source].
type SourceFunc func(ctx context.Context, tenant string) (Limit, error)

// Limit calls f.
func (f SourceFunc) Limit(ctx context.Context, tenant string) (Limit, error) { return f(ctx, tenant) }

// Fixed is the [Source] that gives every tenant the same limit.
func Fixed(l Limit) Source { return fixed(l) }

type fixed Limit

func (f fixed) Limit(context.Context, string) (Limit, error) { return Limit(f), nil }

// FixedLimit reports the limit of a source made by [Fixed], which is the same for every tenant and for ever.
func FixedLimit(s Source) (Limit, bool) {
	f, ok := s.(fixed)
	return Limit(f), ok
}
