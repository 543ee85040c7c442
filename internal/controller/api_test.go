package controller

import (
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/apirules"
)

var _ = Describe("The API", func() {
	It("sets the defaults", func() {
		echo := createEcho(newNamespace(), "hello", func(s *echov1.EchoSpec) { s.Page = &echov1.Page{} })
		Expect(echo.Spec.Replicas).To(Equal(int32(1)))
		Expect(echo.Spec.Port).To(Equal(int32(80)))
		Expect(echo.Spec.TargetPort).To(Equal(int32(5678)))
		Expect(echo.Spec.Page.Color).To(Equal("#2196F3"))
	})

	wrongTypes := []apirules.Violation{
		{Field: "spec.replicas", Rule: "type", Value: "two", Text: "spec.replicas", Detail: "integer"},
		{Field: "spec.args", Rule: "type", Value: "-v", Text: "spec.args", Detail: "array"},
		{Field: "spec.args", Rule: "type", Value: []any{int64(1)}, Text: "spec.args[0]", Detail: "string"},
	}
	var entries []TableEntry
	for _, violation := range slices.Concat(apirules.Violations, wrongTypes) {
		description := fmt.Sprintf("%s: rule %s, value %.20q", violation.Field, violation.Rule, fmt.Sprint(violation.Value))
		entries = append(entries, Entry(description, violation))
	}
	DescribeTable("rejects an invalid Echo with a message that names the field",
		func(violation apirules.Violation) {
			err := admin.Create(ctx, violation.Echo("default"))
			Expect(violation.Check(err)).To(Succeed())
			Expect(err).To(MatchError(ContainSubstring(violation.Detail)))
		},
		entries,
	)

	It("accepts the longest name and the minimum and maximum of every field", func() {
		createEcho(newNamespace(), strings.Repeat("n", 58), func(s *echov1.EchoSpec) {
			s.Message = strings.Repeat("é", 16384)
			s.Replicas, s.Port, s.TargetPort = 5, 65535, 1
		})
		for _, spec := range apirules.Limits {
			Expect(admin.Create(ctx, apirules.Echo("default", spec), client.DryRunAll)).To(Succeed())
		}
	})

	It("passes every message to the server byte for byte", func() {
		startOperator()
		namespace := newNamespace()
		for i, text := range []string{
			`"quoted" 'and' \back`, "two\nlines\n", "--leading", "emoji 😀", "$(HOME) $$ $(ECHO_TEXT) $", strings.Repeat("ü", 16384),
		} {
			echo := createEcho(namespace, fmt.Sprint("m", i), func(s *echov1.EchoSpec) { s.Message = text })
			expectReady(echo)
			Expect(containerOf(echo).Args[0]).To(Equal("-text=" + strings.ReplaceAll(text, "$", "$$")))
		}
	})
})
