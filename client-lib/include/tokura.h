/* Tokura's client for C, and for whatever speaks C: share KV blocks of LLM inference through cache
 * nodes.
 *
 * Rules of every function here:
 *  - Nothing is thrown. A function that can fail takes a `tokura_error*` as its last argument
 * (NULL: not interested), returns NULL or a code that is not TOKURA_OK, and then has written code
 * and text there; on success *error is untouched. Each says which codes it can return;
 * TOKURA_INTERNAL (a bug) and TOKURA_RESOURCE_EXHAUSTED (out of memory) can come from all.
 *  - A NULL handle is TOKURA_INVALID_ARGUMENT where there is an error to report, and else does
 * nothing. ..._free(NULL) does nothing.
 *  - Objects are freed by their own ..._free, in any order: whatever an operation needs, it holds
 * itself. Strings and arrays that a function returns belong to the object they were asked of, and
 * live as long as it does unless said otherwise. Arguments are borrowed for the call only, but for
 * the memory that views point to.
 *  - Thread-safe, all of it, but for tokura_chain, which one thread at a time may use.
 *  - Only ..._wait..., tokura_client_create, tokura_client_free, tokura_operation_free and
 * tokura_set_nodes may block.
 *  - Times are nanoseconds; TOKURA_FOREVER is no limit. Sizes are bytes.
 *
 * Growth: structs begin with their size. Set them up with their ..._init(&s, sizeof s), then change
 * what is to differ from the defaults; those that are filled for the caller only need `struct_size
 * = sizeof s`. A library of the same major version takes smaller structs of older callers, and of
 * newer ones those that use nothing it does not know (TOKURA_INVALID_ARGUMENT else). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* major * 1000 + minor. Of one major version, a program runs with any library whose minor is not
 * lower than the one it was compiled with. */
#define TOKURA_ABI_VERSION 1001
#define TOKURA_FOREVER INT64_MAX
#define TOKURA_KEY_BYTES 16
#define TOKURA_FINGERPRINT_BYTES 32
#define TOKURA_CONTENT_ID_BYTES 16

/* ABI version of the library in use. */
uint32_t tokura_abi_version(void);
/* Version of the library, "0.1.0". */
const char* tokura_version(void);
/* major.minor of the UCX that the library was built for, and of the one that was loaded, "1.22".
 * tokura_client_create refuses when they differ. */
const char* tokura_ucx_version_built(void);
const char* tokura_ucx_version_loaded(void);

/* The canonical codes. */
typedef enum tokura_code {
  TOKURA_OK = 0,
  TOKURA_CANCELLED = 1,
  TOKURA_UNKNOWN = 2,
  TOKURA_INVALID_ARGUMENT = 3,
  TOKURA_DEADLINE_EXCEEDED = 4,
  TOKURA_NOT_FOUND = 5,
  TOKURA_ALREADY_EXISTS = 6,
  TOKURA_PERMISSION_DENIED = 7,
  TOKURA_RESOURCE_EXHAUSTED = 8,
  TOKURA_FAILED_PRECONDITION = 9,
  TOKURA_ABORTED = 10,
  TOKURA_OUT_OF_RANGE = 11,
  TOKURA_UNIMPLEMENTED = 12,
  TOKURA_INTERNAL = 13,
  TOKURA_UNAVAILABLE = 14,
  TOKURA_DATA_LOSS = 15,
  TOKURA_UNAUTHENTICATED = 16
} tokura_code;

/* "NOT_FOUND"; "UNKNOWN" for other numbers. */
const char* tokura_code_name(tokura_code code);

/* Never grows. */
typedef struct tokura_error {
  tokura_code code;
  char message[1020]; /* ends with 0; cut when longer */
} tokura_error;

/* Log events of this level and above on standard error, one line each: "trace", "debug", "info"
 * (default), "warn", "error". INVALID_ARGUMENT: another name. */
tokura_code tokura_set_log_level(const char* level, tokura_error* error);

typedef struct tokura_client tokura_client;
typedef struct tokura_namespace tokura_namespace;
typedef struct tokura_chain tokura_chain;
typedef struct tokura_match tokura_match;
typedef struct tokura_operation tokura_operation;
typedef struct tokura_bytes tokura_bytes;

/* Bytes that the library made. Text is followed by a 0 that does not count. */
const uint8_t* tokura_bytes_data(const tokura_bytes* bytes);
size_t tokura_bytes_size(const tokura_bytes* bytes);
void tokura_bytes_free(tokura_bytes* bytes);

/* ---- Namespaces: everything that must match for KV to be interchangeable ---- */

typedef enum tokura_dtype {
  TOKURA_FLOAT32 = 1,
  TOKURA_FLOAT16 = 2,
  TOKURA_BFLOAT16 = 3,
  TOKURA_FLOAT8_E4M3 = 4
} tokura_dtype;

typedef enum tokura_attention_kind {
  TOKURA_ATTENTION_FULL = 0,
  TOKURA_ATTENTION_SLIDING = 1,
  TOKURA_ATTENTION_LATENT = 2,
  TOKURA_ATTENTION_RECURRENT = 3,
  TOKURA_ATTENTION_OTHER = 4
} tokura_attention_kind;

/* State of rotary position embedding in K: applied, not yet, none. */
typedef enum tokura_rope {
  TOKURA_ROPE_POST = 0,
  TOKURA_ROPE_PRE = 1,
  TOKURA_ROPE_NONE = 2
} tokura_rope;

/* The layers of one attention kind. */
typedef struct tokura_layer_group {
  size_t struct_size;
  uint32_t kind;          /* tokura_attention_kind */
  uint32_t window;        /* tokens a query sees; sliding only */
  const uint32_t* layers; /* [layers_count], ascending indices in the model */
  size_t layers_count;
  uint32_t kv_heads; /* of the whole model; divisible by head_shards (1 for latent) */
  uint32_t k_head_dim;
  uint32_t v_head_dim; /* 0 for latent, where V is part of K */
} tokura_layer_group;
tokura_code tokura_layer_group_init(tokura_layer_group* group, size_t struct_size);

typedef struct tokura_namespace_spec {
  size_t struct_size;
  const char* tenant; /* "default" */
  const char* model;
  const char* model_revision;
  const char* lora_digest;                 /* "": no adapter */
  const char* salt;                        /* "": none */
  uint32_t dtype;                          /* tokura_dtype; float16 */
  uint32_t rope;                           /* tokura_rope; post */
  const tokura_layer_group* const* groups; /* [groups_count], 1 to 8 */
  size_t groups_count;
  uint32_t head_shards;  /* 1: the number of contiguous ranges that the KV heads are cut into */
  uint32_t block_tokens; /* 64; 1 to 1024 */
} tokura_namespace_spec;
tokura_code tokura_namespace_spec_init(tokura_namespace_spec* spec, size_t struct_size);

/* Make a namespace; needs no client. INVALID_ARGUMENT names the field and the rule it breaks. */
tokura_namespace* tokura_namespace_create(const tokura_namespace_spec* spec, tokura_error* error);
void tokura_namespace_free(tokura_namespace* ns);
/* [TOKURA_FINGERPRINT_BYTES]; NULL for NULL. */
const uint8_t* tokura_namespace_fingerprint(const tokura_namespace* ns);
/* Raw size of one whole block, all groups and heads; 0 for NULL. */
uint64_t tokura_namespace_block_bytes(const tokura_namespace* ns);

/* ---- Chains: the block keys of a sequence, each computed once ---- */

#define TOKURA_EXTRA_MULTIMODAL_HASH 1
#define TOKURA_EXTRA_PROMPT_EMBEDDING_HASH 2

/* What changes KV without changing token ids. Never grows. */
typedef struct tokura_key_extra {
  uint8_t kind; /* TOKURA_EXTRA_..., or 128 to 255 of the engine's own */
  const uint8_t* hash;
  size_t hash_bytes; /* the whole hash, never truncated */
} tokura_key_extra;

/* An empty chain. What is appended first decides what it is made of: tokens, an engine's hashes, or
 * keys. One thread at a time may use it. */
tokura_chain* tokura_chain_create(const tokura_namespace* ns, tokura_error* error);
tokura_chain* tokura_chain_copy(const tokura_chain* chain, tokura_error* error);
void tokura_chain_free(tokura_chain* chain);
/* `extras` (NULL with 0) are of the item that begins with the first of `tokens`: one call per item
 * and one for the text between. How text is cut into calls changes nothing. FAILED_PRECONDITION: a
 * chain of hashes or keys. */
tokura_code tokura_chain_append_tokens(tokura_chain* chain, const uint32_t* tokens,
                                       size_t tokens_count, const tokura_key_extra* extras,
                                       size_t extras_count, tokura_error* error);
/* One block by the engine's own stable hash, which names its whole prefix. FAILED_PRECONDITION: a
 * chain of tokens or keys; INVALID_ARGUMENT: no bytes. */
tokura_code tokura_chain_append_engine_hash(tokura_chain* chain, const uint8_t* hash,
                                            size_t hash_bytes, tokura_error* error);
/* Blocks by keys of the same namespace, [keys_count][TOKURA_KEY_BYTES]. FAILED_PRECONDITION: a
 * chain of tokens or hashes. */
tokura_code tokura_chain_append_keys(tokura_chain* chain, const uint8_t* keys, size_t keys_count,
                                     tokura_error* error);
/* Complete blocks, and all tokens, the open tail included. */
size_t tokura_chain_blocks(const tokura_chain* chain);
uint64_t tokura_chain_tokens(const tokura_chain* chain);
/* [blocks][TOKURA_KEY_BYTES], until the next append. */
const uint8_t* tokura_chain_keys(const tokura_chain* chain);

/* ---- Views: where KV lies in the engine's memory ---- */

typedef enum tokura_memory_space { TOKURA_HOST = 0, TOKURA_CUDA = 1 } tokura_memory_space;

/* In bytes, none negative. Never grows. */
typedef struct tokura_kv_strides {
  int64_t page, head, token, channel;
} tokura_kv_strides;

/* Element (page 0, head 0, token 0, channel 0) of K and of V of one layer; V is NULL for latent.
 * Never grows. */
typedef struct tokura_kv_layer {
  void* k;
  void* v;
} tokura_kv_layer;

/* The KV of one layer group of one sequence: token t is slot t % page_tokens of page page_table[t /
 * page_tokens]. Contiguous memory is one page. K and V have strides of their own: K may be
 * channel-major and V token-major in one tensor. */
typedef struct tokura_kv_view {
  size_t struct_size;
  uint32_t dtype; /* tokura_dtype; float16 */
  uint32_t space; /* tokura_memory_space; host */
  uint32_t heads; /* that this worker holds, in model order */
  uint32_t k_head_dim;
  uint32_t v_head_dim;
  uint32_t tokens;
  uint32_t page_tokens;
  uint32_t read_only;         /* 1: puts take it, gets refuse it */
  const uint32_t* page_table; /* [page_table_count] */
  size_t page_table_count;
  const tokura_kv_layer* layers; /* [layers_count], in the order of the layer group */
  size_t layers_count;
  tokura_kv_strides k_strides;
  tokura_kv_strides v_strides;
} tokura_kv_view;
tokura_code tokura_kv_view_init(tokura_kv_view* view, size_t struct_size);

/* A view per layer group (NULL: this group is neither read nor written), for head shards
 * [first_shard, first_shard + shards). Token t of the views is token first_token + t of the
 * sequence. The descriptions are copied when an operation starts; the memory they describe stays
 * valid until the get is done, or the put's source released. */
typedef struct tokura_sequence_view {
  size_t struct_size;
  const tokura_kv_view* const* groups; /* [groups_count] */
  size_t groups_count;
  uint32_t first_shard; /* 0 */
  uint32_t shards;      /* 0, the default: all from first_shard on */
  uint64_t first_token; /* 0; a multiple of block_tokens */
} tokura_sequence_view;
tokura_code tokura_sequence_view_init(tokura_sequence_view* view, size_t struct_size);

/* ---- The client ---- */

typedef struct tokura_client_options {
  size_t struct_size;
  const char* const* coordinators; /* [coordinators_count] "host:port": they say which nodes there
                                      are and what they hold */
  size_t coordinators_count;
  const char* const* nodes; /* [nodes_count] "host:port" of cache nodes, where there is no
                               coordinator; one list is empty */
  size_t nodes_count;
  const char* name;         /* "client"; for the servers' logs */
  const char* ingest_codec; /* "kivi4"; where no policy of a coordinator says otherwise */
  uint64_t ring_bytes;      /* 64 MiB; registered memory for payloads in both directions */
  uint64_t window_bytes;    /* 1 MiB; what one node's payloads, in each direction, may take of the
                               ring at a time; two parts are always allowed */
  uint64_t part_bytes_max;  /* 16 MiB; larger parts are refused */
  uint64_t
      inline_decode_bytes; /* 64 KiB; gets up to this raw size are decoded on the progress thread */
  uint32_t codec_threads;  /* 1 */
  uint32_t operations_max; /* 1024 outstanding; more are RESOURCE_EXHAUSTED */
  uint32_t sink_tokens;    /* 4; first tokens of a sequence that are kept raw */
  uint32_t accept_proxy_error;    /* 0; 1: forms judged by their own keys meet a stated max_error */
  uint32_t wake_spin;             /* 0: the progress thread sleeps; 1: it spins */
  uint32_t reserved;              /* 0 */
  int64_t progress_timeout_ns;    /* 200 ms; an operation without progress for so long ends */
  int64_t connect_timeout_ns;     /* 1 s */
  int64_t heartbeat_ns;           /* 250 ms */
  int64_t dead_after_ns;          /* 1 s */
  int64_t breaker_backoff_min_ns; /* 100 ms */
  int64_t breaker_backoff_max_ns; /* 2 s */
  int64_t spin_ns;                /* 50 us before sleeping */
  /* Since 1001: model profiles, read when the client is made. Blocks are put with the first that
   * fits their model; blocks that need one that is not here are misses (TOKURA_NOT_FOUND). */
  const char* const* profiles; /* [profiles_count] files, used in this order */
  size_t profiles_count;
  const char* profile_dir; /* NULL: none; all its *.profile follow, by name */
} tokura_client_options;
tokura_code tokura_client_options_init(tokura_client_options* options, size_t struct_size);

/* Start a client with its progress thread, codec threads and ring. Servers need not be reachable.
 * One per process is enough. INVALID_ARGUMENT: an option or address; UNAVAILABLE: the transport
 * does not start; RESOURCE_EXHAUSTED: memory cannot be registered; FAILED_PRECONDITION: the UCX
 * that was loaded is not the one built for, or this process was forked from one that had made a
 * client (fork first). A profile that cannot be used: INVALID_ARGUMENT, FAILED_PRECONDITION
 * (another version), DATA_LOSS, NOT_FOUND or UNAVAILABLE, with the file's name. */
tokura_client* tokura_client_create(const tokura_client_options* options, tokura_error* error);
/* Cancel and end every operation, then disconnect: when this returns no view is read or written any
 * more. Operations that were not freed stay readable. Not from a callback. In a forked child it
 * only forgets the client. */
void tokura_client_free(tokura_client* client);
/* Replace the list of nodes. INVALID_ARGUMENT: an address; FAILED_PRECONDITION: coordinators say
 * which nodes there are. */
tokura_code tokura_set_nodes(tokura_client* client, const char* const* nodes, size_t nodes_count,
                             tokura_error* error);
/* The client's metrics in Prometheus' text format. */
tokura_bytes* tokura_metrics_text(tokura_client* client, tokura_error* error);

/* ---- Matches: what a lookup or acquire found ---- */

/* Never grows. */
typedef struct tokura_match_run {
  const char* node; /* name */
  uint32_t first;   /* block */
  uint32_t count;
} tokura_match_run;

typedef struct tokura_match_info {
  size_t struct_size;
  size_t blocks;
  uint32_t block_tokens;
  uint32_t held;                /* 1: some of it is leased */
  const uint8_t* keys;          /* [blocks][TOKURA_KEY_BYTES] */
  const uint8_t* fingerprint;   /* [TOKURA_FINGERPRINT_BYTES] */
  const char* const* codecs;    /* [blocks]; NULL: not known */
  const uint64_t* stored_bytes; /* [blocks]; of a hint, estimates; NULL: not known */
  const tokura_match_run* runs; /* [runs_count], in order, covering every block once */
  size_t runs_count;
} tokura_match_info;

/* Fill *info; its arrays live as long as the match. INVALID_ARGUMENT: NULL, a wrong struct_size. */
tokura_code tokura_match_describe(const tokura_match* match, tokura_match_info* info,
                                  tokura_error* error);
/* For another process of the same tenant. Versioned, checked by a CRC. */
tokura_bytes* tokura_match_to_bytes(const tokura_match* match, tokura_error* error);
/* Any bytes are safe to give; INVALID_ARGUMENT says what is wrong. */
tokura_match* tokura_match_from_bytes(const uint8_t* data, size_t size, tokura_error* error);
void tokura_match_free(tokura_match* match);
/* Ask the nodes to hold on to a held match, or let them unpin it; return at once.
 * FAILED_PRECONDITION: the process was forked; RESOURCE_EXHAUSTED: too many calls wait. */
tokura_code tokura_renew(tokura_client* client, const tokura_match* held, tokura_error* error);
tokura_code tokura_release(tokura_client* client, const tokura_match* held, tokura_error* error);

/* ---- Operations ----
 *
 * ..._start returns at once; the operation ends by its deadline, whatever servers do. NULL with
 * INVALID_ARGUMENT: what is wrong; RESOURCE_EXHAUSTED: too many calls wait; FAILED_PRECONDITION:
 * the process was forked. A cache failure is none of these: it is an empty match, or a code per
 * block in the result. */

typedef struct tokura_accept_options {
  size_t struct_size;
  double max_error;       /* negative, the default: the policy's budget, else any; 0: exact only */
  uint32_t allow_summary; /* 0 */
  uint32_t touch;         /* 1: keep the chain warm; lookups only */
  int64_t deadline_ns;    /* negative: progress_timeout; lookups only */
} tokura_accept_options;
tokura_code tokura_accept_options_init(tokura_accept_options* options, size_t struct_size);

typedef struct tokura_get_options {
  size_t struct_size;
  double max_error;       /* negative, the default: the policy's budget, else any; 0: exact only */
  uint32_t allow_summary; /* 0 */
  uint32_t first_block;   /* 0; of the match */
  uint32_t blocks;        /* 0: all to the end */
  uint32_t first_layer;   /* 0; within every group */
  uint32_t layers;        /* 0: all to the end */
  uint32_t track_layers; /* 0; 1: tell which layers are done; the blocks that a caller may have seen
                            are then not tried at another node */
  int64_t deadline_ns;   /* negative: progress_timeout without progress, plus twice the predicted
                            transfer */
} tokura_get_options;
tokura_code tokura_get_options_init(tokura_get_options* options, size_t struct_size);

typedef struct tokura_put_options {
  size_t struct_size;
  const char* codec;    /* NULL: the policy's, else ingest_codec */
  uint32_t first_block; /* 0; of the chain */
  uint32_t blocks;      /* 0: all complete blocks that the view covers */
  int64_t
      deadline_ns; /* negative: progress_timeout plus twice the predicted encoding and transfer */
  const uint8_t* content_id_base; /* [TOKURA_CONTENT_ID_BYTES] that all ranks putting one sequence
                                     share; NULL: one writer */
} tokura_put_options;
tokura_code tokura_put_options_init(tokura_put_options* options, size_t struct_size);

/* Options may be NULL: the defaults. */

/* Succeed once some node is connected (in a cluster: every member that is up is, or has failed), at
 * most `timeout_ns`. Ends DEADLINE_EXCEEDED with what was tried and why it failed; read it with
 * tokura_operation_status. Cannot be cancelled. */
tokura_operation* tokura_ready_start(tokura_client* client, int64_t timeout_ns,
                                     tokura_error* error);
/* The leading blocks of `chain` that some node holds in an acceptable form; a hint.
 * INVALID_ARGUMENT: chain and namespace disagree. */
tokura_operation* tokura_lookup_start(tokura_client* client, const tokura_namespace* ns,
                                      const tokura_chain* chain,
                                      const tokura_accept_options* options, tokura_error* error);
/* Pin a match at its nodes, cut to the first gap, until tokura_release, lease_age without use, or
 * the client's end. */
tokura_operation* tokura_acquire_start(tokura_client* client, const tokura_namespace* ns,
                                       const tokura_match* match,
                                       const tokura_accept_options* options, tokura_error* error);
/* Fetch blocks of `match` into `view`: block i goes to tokens i * block_tokens of the sequence.
 * Several gets of one block have it from one writer only when the match is held. */
tokura_operation* tokura_get_start(tokura_client* client, const tokura_namespace* ns,
                                   const tokura_match* match, const tokura_sequence_view* view,
                                   const tokura_get_options* options, tokura_error* error);
/* Encode and store blocks of `chain` from `view`; those held already are not sent. */
tokura_operation* tokura_put_start(tokura_client* client, const tokura_namespace* ns,
                                   const tokura_chain* chain, const tokura_sequence_view* view,
                                   const tokura_put_options* options, tokura_error* error);
/* `keys`: [keys_count][TOKURA_KEY_BYTES]. */
tokura_operation* tokura_remove_start(tokura_client* client, const tokura_namespace* ns,
                                      const uint8_t* keys, size_t keys_count, tokura_error* error);
tokura_operation* tokura_stat_start(tokura_client* client, tokura_error* error);

/* 1 once the operation ended. Waits for no lock; for polling. */
int tokura_operation_done(const tokura_operation* operation);
/* Wait at most `timeout_ns`; 1 once it ended. */
int tokura_operation_wait(tokura_operation* operation, int64_t timeout_ns);
/* End it early: what has not finished ends CANCELLED, soon. */
void tokura_operation_cancel(tokura_operation* operation);
/* Forget it. A get is cancelled, and this waits until its view is no longer written; a put goes on,
 * and this waits until its view is no longer read; others go on. A callback that has not run will
 * still run. Not from a callback. */
void tokura_operation_free(tokura_operation* operation);
/* Call `done(context)` once, when the operation ended: on the client's progress thread, where it
 * must take microseconds, not block and call nothing here but tokura_operation_done, _status and
 * _elapsed_ns; or at once, on this thread, when it ended before. FAILED_PRECONDITION: there is a
 * callback already. */
tokura_code tokura_operation_notify(tokura_operation* operation, void (*done)(void* context),
                                    void* context, tokura_error* error);
/* How it ended as a whole: OK for a get or put, whatever became of its blocks. FAILED_PRECONDITION:
 * not yet. */
tokura_code tokura_operation_status(const tokura_operation* operation, tokura_error* error);
/* From its start to its end, or to now. */
int64_t tokura_operation_elapsed_ns(const tokura_operation* operation);

/* A get's layer (counted within its group, from 0) is complete for every block that did not fail,
 * or the get ended: 1. Else 0; -1: not a get. */
int tokura_operation_layer_done(const tokura_operation* operation, uint32_t group, uint32_t layer);
int tokura_operation_wait_layer(tokura_operation* operation, uint32_t group, uint32_t layer,
                                int64_t timeout_ns);
/* A put's view is no longer read: 1. Else 0; -1: not a put. By its deadline at the latest. */
int tokura_operation_released(const tokura_operation* operation);
int tokura_operation_wait_released(tokura_operation* operation, int64_t timeout_ns);

/* The result of a lookup or acquire; the caller frees it. FAILED_PRECONDITION: not ended, or
 * another kind of operation; any other code: how it ended. */
tokura_match* tokura_operation_match(const tokura_operation* operation, tokura_error* error);

/* The result of a get, put or remove. Arrays of `blocks`; what does not apply to the kind is NULL
 * or 0. */
typedef struct tokura_blocks_result {
  size_t struct_size;
  size_t blocks;
  const uint8_t* codes;         /* tokura_code per block */
  const char* const* messages;  /* "" where OK */
  const char* const* codecs;    /* get: "" where not OK */
  const double* declared_error; /* get: relative attention-output error, mean over layers; 0: exact,
                                   infinity: not measured */
  const uint8_t* proxy_error;   /* get: 1 where judged by the block's own keys only */
  size_t prefix_ok;             /* leading OK blocks */
  size_t blocks_ok;
  uint64_t bytes_moved;   /* payload over the wire */
  uint64_t bytes_logical; /* raw size of OK blocks */
  int64_t wire_ns;  /* from the first request or payload to the last thing received; overlaps with
                       codec_ns */
  int64_t codec_ns; /* of the codec threads, added up */
} tokura_blocks_result;

/* Fill *result; its arrays live as long as the operation. INVALID_ARGUMENT: NULL, a wrong
 * struct_size; FAILED_PRECONDITION: not ended, or another kind of operation. */
tokura_code tokura_operation_result(const tokura_operation* operation, tokura_blocks_result* result,
                                    tokura_error* error);

typedef struct tokura_node_stat {
  size_t struct_size;
  uint32_t code; /* tokura_code: OK, or why the rest is 0 */
  uint32_t reserved;
  const char* message;
  const char* node;
  uint64_t incarnation, blocks, forms, bytes_stored, bytes_logical;
  uint64_t capacity_bytes, largest_free_bytes, pinned_bytes, leases;
} tokura_node_stat;

/* The number of nodes that a stat asked; 0 before it ended. */
size_t tokura_operation_nodes(const tokura_operation* operation);
/* Fill *stat of node `index`; its strings live as long as the operation. OUT_OF_RANGE: no such
 * node; INVALID_ARGUMENT: NULL, a wrong struct_size; FAILED_PRECONDITION: not ended, or another
 * kind of operation. */
tokura_code tokura_operation_node_stat(const tokura_operation* operation, size_t index,
                                       tokura_node_stat* stat, tokura_error* error);

#ifdef __cplusplus
} /* extern "C" */
#endif
