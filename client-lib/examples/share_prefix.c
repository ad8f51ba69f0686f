/* Two clients share the KV of one prompt through a cache node, in C11:
 *   example-share-prefix-c 127.0.0.1:4321
 * The first stores the KV of its prompt; the second, which knows only the tokens, finds the longest
 * prefix of its own prompt at the node and reads it into its own memory. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokura.h"

enum { kLayers = 4, kHeads = 2, kHeadDim = 64, kTokens = 256 };
enum { kSide = kHeads * kTokens * kHeadDim }; /* floats of K or V of a layer */

static const int64_t kSecond = 1000000000;

static void Fail(const char* what, const tokura_error* error) {
  fprintf(stderr, "%s: %s: %s\n", what, tokura_code_name(error->code), error->message);
  exit(1);
}

/* One worker's KV memory: per layer K and V as [heads, tokens, head_dim] in float32. */
typedef struct Memory {
  float* values;
  tokura_kv_layer layers[kLayers];
  uint32_t page;
  tokura_kv_view view;
  const tokura_kv_view* groups[1];
  tokura_sequence_view sequence;
} Memory;

static void InitMemory(Memory* memory) {
  const int64_t token = kHeadDim * sizeof(float);
  memory->values = calloc((size_t)2 * kLayers * kSide, sizeof(float));
  if (memory->values == NULL) {
    abort();
  }
  for (int i = 0; i < kLayers; ++i) {
    memory->layers[i].k = memory->values + (size_t)2 * i * kSide;
    memory->layers[i].v = memory->values + (size_t)(2 * i + 1) * kSide;
  }
  memory->page = 0;
  tokura_kv_view_init(&memory->view, sizeof(memory->view));
  memory->view.dtype = TOKURA_FLOAT32;
  memory->view.heads = kHeads;
  memory->view.k_head_dim = memory->view.v_head_dim = kHeadDim;
  memory->view.tokens = memory->view.page_tokens = kTokens;
  memory->view.page_table = &memory->page;
  memory->view.page_table_count = 1;
  memory->view.layers = memory->layers;
  memory->view.layers_count = kLayers;
  memory->view.k_strides.head = kTokens * token;
  memory->view.k_strides.token = token;
  memory->view.k_strides.channel = sizeof(float);
  memory->view.v_strides = memory->view.k_strides;
  memory->groups[0] = &memory->view;
  tokura_sequence_view_init(&memory->sequence, sizeof(memory->sequence));
  memory->sequence.groups = memory->groups;
  memory->sequence.groups_count = 1;
}

static tokura_namespace* OpenNamespace(void) {
  static const uint32_t layers[kLayers] = {0, 1, 2, 3};
  tokura_error error;
  tokura_layer_group group;
  tokura_layer_group_init(&group, sizeof(group));
  group.layers = layers;
  group.layers_count = kLayers;
  group.kv_heads = kHeads;
  group.k_head_dim = group.v_head_dim = kHeadDim;
  const tokura_layer_group* groups[] = {&group};
  tokura_namespace_spec spec;
  tokura_namespace_spec_init(&spec, sizeof(spec));
  spec.model = "example";
  spec.dtype = TOKURA_FLOAT32;
  spec.groups = groups;
  spec.groups_count = 1;
  tokura_namespace* ns = tokura_namespace_create(&spec, &error);
  if (ns == NULL) {
    Fail("namespace", &error);
  }
  return ns;
}

static tokura_client* Connect(const char* node, const char* name) {
  tokura_error error;
  tokura_client_options options;
  tokura_client_options_init(&options, sizeof(options));
  options.nodes = &node;
  options.nodes_count = 1;
  options.name = name;
  options.ingest_codec = "raw"; /* exact; the default, kivi4, takes a quarter of the bytes */
  options.progress_timeout_ns = 5 * kSecond;
  tokura_client* client = tokura_client_create(&options, &error);
  if (client == NULL) {
    Fail(name, &error);
  }
  tokura_operation* ready = tokura_ready_start(client, 5 * kSecond, &error);
  if (ready == NULL) {
    Fail(name, &error);
  }
  tokura_operation_wait(ready, TOKURA_FOREVER);
  if (tokura_operation_status(ready, &error) != TOKURA_OK) {
    Fail(name, &error);
  }
  tokura_operation_free(ready);
  return client;
}

/* Wait for a get or put; how many leading blocks are OK. Frees the operation. */
static size_t Finish(tokura_operation* operation, tokura_error* error, const char* what) {
  if (operation == NULL) {
    Fail(what, error);
  }
  tokura_operation_wait(operation, TOKURA_FOREVER);
  tokura_blocks_result result = {.struct_size = sizeof(result)};
  if (tokura_operation_result(operation, &result, error) != TOKURA_OK) {
    Fail(what, error);
  }
  const size_t ok = result.prefix_ok;
  printf("%s: %zu of %zu blocks, %" PRIu64 " bytes moved\n", what, ok, result.blocks,
         result.bytes_moved);
  tokura_operation_free(operation);
  return ok;
}

static tokura_match* Lookup(tokura_client* client, const tokura_namespace* ns,
                            const tokura_chain* chain) {
  tokura_error error;
  tokura_operation* lookup = tokura_lookup_start(client, ns, chain, NULL, &error);
  if (lookup == NULL) {
    Fail("lookup", &error);
  }
  tokura_operation_wait(lookup, TOKURA_FOREVER);
  tokura_match* match = tokura_operation_match(lookup, &error);
  if (match == NULL) {
    Fail("lookup", &error);
  }
  tokura_operation_free(lookup);
  return match;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: example-share-prefix-c HOST:PORT\n");
    return 2;
  }
  tokura_error error;
  tokura_client* prefill = Connect(argv[1], "prefill");
  tokura_client* decode = Connect(argv[1], "decode");
  tokura_namespace* ns = OpenNamespace();
  tokura_chain* chain = tokura_chain_create(ns, &error);
  uint32_t prompt[kTokens];
  for (uint32_t i = 0; i < kTokens; ++i) {
    prompt[i] = 1000 + i;
  }
  if (chain == NULL ||
      tokura_chain_append_tokens(chain, prompt, kTokens, NULL, 0, &error) != TOKURA_OK) {
    Fail("chain", &error);
  }

  Memory source, target;
  InitMemory(&source);
  InitMemory(&target);
  for (int i = 0; i < 2 * kLayers * kSide; ++i) {
    source.values[i] = (float)i;
  }
  Finish(tokura_put_start(prefill, ns, chain, &source.sequence, NULL, &error), &error, "put");
  tokura_match* match = Lookup(decode, ns, chain);
  const size_t got =
      Finish(tokura_get_start(decode, ns, match, &target.sequence, NULL, &error), &error, "get");
  const size_t bytes = (size_t)2 * kLayers * kSide * sizeof(float);
  const int same =
      got == tokura_chain_blocks(chain) && memcmp(source.values, target.values, bytes) == 0;
  puts(same ? "same values" : "NOT the same");

  tokura_match_free(match);
  tokura_chain_free(chain);
  tokura_namespace_free(ns);
  tokura_client_free(decode);
  tokura_client_free(prefill);
  free(source.values);
  free(target.values);
  return same ? 0 : 1;
}
