/* A tool for NVTX ranges, as Nsight Systems is one: the process loads it for NVTX_INJECTION64_PATH. It appends a line
 * for each event to the file NVTX_TOOL_OUT.PID: "domain NAME", "start DOMAIN RANGE NAME BYTES", "end RANGE". */
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { kMost = 1000 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static FILE* out = NULL;
static const char* domains[kMost];
static const char* strings[kMost];
static size_t all_domains = 1;
static size_t all_strings = 1;
static nvtxRangeId_t ranges = 0;

static nvtxDomainHandle_t create_domain(const char* name) {
  pthread_mutex_lock(&mutex);
  domains[all_domains] = name;
  const size_t number = all_domains++;
  fprintf(out, "domain %s\n", name);
  pthread_mutex_unlock(&mutex);
  return (nvtxDomainHandle_t)number; /* NOLINT: a handle is any word */
}

static nvtxStringHandle_t register_string(nvtxDomainHandle_t domain, const char* string) {
  (void)domain;
  pthread_mutex_lock(&mutex);
  strings[all_strings] = string;
  const size_t number = all_strings++;
  pthread_mutex_unlock(&mutex);
  return (nvtxStringHandle_t)number; /* NOLINT: a handle is any word */
}

static nvtxRangeId_t start_range(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  pthread_mutex_lock(&mutex);
  const nvtxRangeId_t range = ++ranges;
  fprintf(out, "start %s %llu %s %llu\n", domains[(size_t)domain], (unsigned long long)range,
          event->messageType == NVTX_MESSAGE_TYPE_REGISTERED ? strings[(size_t)event->message.registered] : "?",
          event->payloadType == NVTX_PAYLOAD_TYPE_UNSIGNED_INT64 ? (unsigned long long)event->payload.ullValue : 0);
  pthread_mutex_unlock(&mutex);
  return range;
}

static void end_range(nvtxDomainHandle_t domain, nvtxRangeId_t range) {
  (void)domain;
  pthread_mutex_lock(&mutex);
  fprintf(out, "end %llu\n", (unsigned long long)range);
  pthread_mutex_unlock(&mutex);
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const NvtxExportTableCallbacks* const callbacks = (const NvtxExportTableCallbacks*)get_table(NVTX_ETID_CALLBACKS);
  NvtxFunctionTable table = NULL;
  unsigned size = 0;
  char path[4096];
  if (callbacks == NULL || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size)) return 0;
  if (size <= NVTX_CBID_CORE2_DomainRegisterStringA || getenv("NVTX_TOOL_OUT") == NULL) return 0;
  snprintf(path, sizeof path, "%s.%d", getenv("NVTX_TOOL_OUT"), (int)getpid());
  out = fopen(path, "ae");
  if (out == NULL) return 0;
  setvbuf(out, NULL, _IOLBF, 0);
  *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create_domain;
  *table[NVTX_CBID_CORE2_DomainRegisterStringA] = (NvtxFunctionPointer)register_string;
  *table[NVTX_CBID_CORE2_DomainRangeStartEx] = (NvtxFunctionPointer)start_range;
  *table[NVTX_CBID_CORE2_DomainRangeEnd] = (NvtxFunctionPointer)end_range;
  return 1;
}
