#!/usr/bin/env python3
"""Optional: a public validator accepts /openapi.json, and requests and answers fit their schemas. Needs the packages

  pip install openapi-spec-validator jsonschema
"""
import json
import unittest

import jsonschema
import openapi_spec_validator

from cluster import Cluster

REQUESTS = [dict(prompt="Once", max_tokens=4), dict(prompt=[5, 6], n=2, max_tokens=4, top_k=5, stop=["x"], seed=1, user=None),
            dict(prompt=["a", "b"], use_beam_search=True, num_beams=3, max_tokens=4, logit_bias={"7": 1.5}, return_token_ids=True),
            dict(prompt="a", max_tokens=4, speculative=dict(method="gumbel_coupling", draft_width=4, draft_depth="auto"))]
BAD = [dict(max_tokens=4), dict(prompt="a", temperature=3), dict(prompt="a", n=0), dict(prompt=7),
       dict(prompt="a", speculative=dict(method="none such"))]


class OpenApi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(coordinator_flags=("--chat_template=chatml",))
        cls.cluster.__enter__()
        cls.document = json.loads(cls.cluster.api.get("/openapi.json")[1])

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None)

    def validator(self, schema):
        return jsonschema.Draft202012Validator({"$ref": f"#/components/schemas/{schema}", "components": self.document["components"]})

    def test_the_document_is_valid(self):
        openapi_spec_validator.validate(self.document)

    def test_requests_and_answers_fit(self):
        for body in REQUESTS:
            self.validator("CompletionRequest").validate(body)
            self.validator("CompletionAnswer").validate(self.cluster.api.complete(body))

    def test_requests_and_answers_of_other_apis_fit(self):
        messages = [dict(role="user", content="Hi")]
        for path, name, body in (("/v1/responses", "Responses", dict(input="Hi", max_output_tokens=4, text=None)),
                                 ("/v1/responses", "Responses", dict(input=messages, max_output_tokens=4, top_logprobs=1)),
                                 ("/v1/messages", "Messages", dict(messages=messages, max_tokens=4, stop_sequences=["x"])),
                                 ("/v1/messages/count_tokens", "CountTokens", dict(messages=messages))):
            self.validator(name + "Request").validate(body)
            self.validator(name + "Answer").validate(self.cluster.api.complete(body, path))
        self.validator("Error").validate(self.cluster.api.post({}, "/v1/messages")[1])
        self.validator("TokenizerInfo").validate(json.loads(self.cluster.api.get("/tokenizer_info")[1]))

    def test_what_the_server_refuses_does_not_fit(self):
        for body in BAD:
            status, answer = self.cluster.api.post(body)
            self.assertEqual(status, 400, body)
            self.validator("Error").validate(answer)
            self.assertFalse(self.validator("CompletionRequest").is_valid(body), body)


if __name__ == "__main__":
    unittest.main(verbosity=2)
