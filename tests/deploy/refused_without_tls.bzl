"""A test that a target cannot be built with --config=demo, and that the message says what to do."""

def _refused_without_tls_test(ctx):
    target = ctx.attr.target[0]  # of a list, because the attribute has a transition
    if AnalysisFailureInfo not in target:
        return [AnalysisTestResultInfo(success = False, message = "%s is not refused" % target.label)]
    messages = [cause.message for cause in target[AnalysisFailureInfo].causes.to_list()]
    return [AnalysisTestResultInfo(
        success = len([text for text in messages if "build it without --config=demo" in text]) > 0,
        message = "\n".join(messages),
    )]

refused_without_tls_test = rule(
    implementation = _refused_without_tls_test,
    analysis_test = True,
    attrs = {"target": attr.label(
        mandatory = True,
        cfg = analysis_test_transition(settings = {
            "//command_line_option:allow_analysis_failures": "True",
            "//exporter/web:with_tls": False,
        }),
    )},
)
