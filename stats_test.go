package leaselimit_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/leaselimit/leaselimit"
)

// Plus must not forget a field that is added later.
func TestStatsPlusAddsEveryField(t *testing.T) {
	var a leaselimit.Stats
	v := reflect.ValueOf(&a).Elem()
	for i := range v.NumField() {
		if v.Field(i).Kind() == reflect.Int64 {
			v.Field(i).SetInt(int64(i + 1))
		} else {
			v.Field(i).SetBool(true)
		}
	}
	sum := reflect.ValueOf(a.Plus(a))
	for i := range sum.NumField() {
		if sum.Field(i).Kind() == reflect.Int64 {
			assert.Equal(t, int64(2*(i+1)), sum.Field(i).Int(), sum.Type().Field(i).Name)
		}
	}
	assert.True(t, leaselimit.Stats{}.Plus(a).Degraded)
}
