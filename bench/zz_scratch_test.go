package bench
import ("testing";"context";"regexp"
"github.com/leaselimit/leaselimit/bench/peer"
"github.com/leaselimit/leaselimit/lease"
"github.com/leaselimit/leaselimit/quota"
"github.com/leaselimit/leaselimit/redisbucket"
"github.com/leaselimit/leaselimit/internal/redistest"
"github.com/redis/go-redis/v9")
func stats(b *testing.B, rdb *redis.Client){
 s,_:=rdb.Info(context.Background(),"commandstats").Result()
 for _,m:=range regexp.MustCompile(`cmdstat_(\w+):calls=(\d+),usec=(\d+),usec_per_call=([\d.]+)`).FindAllStringSubmatch(s,-1){ b.Log(m[1],m[2],m[4]) }
 rdb.ConfigResetStat(context.Background())
}
func BenchmarkZDirect(b *testing.B){
 rdb:=redis.NewClient(&redis.Options{Addr: overTCP(b)}); defer rdb.Close()
 st:=redisbucket.New(rdb, redisbucket.WithPrefix(redistest.Prefix(b)))
 tm:=lease.Terms{Limit:quota.PerSecond(1000000000,1000000000),Budget:1000,Share:1000,TTL:10e9}
 rdb.ConfigResetStat(context.Background())
 for b.Loop(){ _,err:=st.Acquire(context.Background(), lease.AcquireRequest{Key:lease.Key{Tenant:"a",Class:"c"},Terms:tm,Min:2,Need:2,Replicas:1}); if err!=nil {b.Fatal(err)} }
 stats(b,rdb)
}
func BenchmarkZPing(b *testing.B){
 rdb:=redis.NewClient(&redis.Options{Addr: overTCP(b)}); defer rdb.Close()
 for b.Loop(){ rdb.Ping(context.Background()) }
}
func zr(b *testing.B, p peer.Peer){
 rdb:=redis.NewClient(&redis.Options{Addr: overTCP(b)}); defer rdb.Close()
 l,err:=p.Prepare(peer.Work{Tenants:1,Allow:true,Addr:overTCP(b)}); if err!=nil {b.Fatal(err)}
 rdb.ConfigResetStat(context.Background())
 for b.Loop(){ l.Decide(0) }
 l.Close()
 stats(b,rdb)
}
func BenchmarkZWaiting(b *testing.B){ zr(b,peer.Waiting)}
func BenchmarkZRate(b *testing.B){ zr(b,peer.RedisRate)}
func BenchmarkZScript(b *testing.B){ zr(b,peer.ScriptGoRedis)}
