/* Loads a SavedModel as TF Serving does, through TensorFlow's C API and without Python, and
 * runs sets of tensors.
 *
 *   serve MODEL OP_LIBRARY|-
 *       ((in TENSOR TYPE RANK DIMENSION... VALUE...)... (out TENSOR)... run)...
 *
 * TYPE is string (values in hexadecimal after an x), int32 or float. For each output it prints
 * a line with the type, the rank, the dimensions and the values in the same form or, if the run
 * fails, with the word error, the code and the message.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/c_api.h"

#define MOST 16

/* tensorflow::DisableXlaCompilation(), which the server's main() calls first. */
extern void _ZN10tensorflow21DisableXlaCompilationEv(void);

static void check(TF_Status *status, const char *what) {
  if (TF_GetCode(status) == TF_OK) return;
  fprintf(stderr, "%s: code %d: %s\n", what, TF_GetCode(status), TF_Message(status));
  exit(1);
}

static TF_Output find(TF_Graph *graph, const char *tensor) {
  char name[512];
  snprintf(name, sizeof name, "%s", tensor);
  char *colon = strrchr(name, ':');
  if (colon) *colon = 0;
  TF_Output output = {TF_GraphOperationByName(graph, name), colon ? atoi(colon + 1) : 0};
  if (!output.oper) {
    fprintf(stderr, "there is no operation %s\n", name);
    exit(2);
  }
  return output;
}

static size_t count(int rank, const int64_t *dimensions) {
  size_t values = 1;
  for (int i = 0; i < rank; i++) values *= dimensions[i];
  return values;
}

static void read_string(const char *hex, TF_TString *string) {
  size_t size = strlen(hex + 1) / 2;
  char *bytes = malloc(size + 1);
  for (size_t i = 0; i < size; i++) {
    unsigned byte;
    sscanf(hex + 1 + 2 * i, "%2x", &byte);
    bytes[i] = (char)byte;
  }
  TF_StringInit(string);
  TF_StringCopy(string, bytes, size);
  free(bytes);
}

/* Reads TYPE RANK DIMENSION... VALUE... and moves the pointer behind them. */
static TF_Tensor *read_tensor(char ***arguments) {
  char **argument = *arguments;
  const char *type = *argument++;
  int rank = atoi(*argument++);
  int64_t dimensions[MOST];
  for (int i = 0; i < rank; i++) dimensions[i] = atoll(*argument++);
  size_t values = count(rank, dimensions);
  TF_DataType kind = !strcmp(type, "string") ? TF_STRING
                     : !strcmp(type, "int32") ? TF_INT32
                                              : TF_FLOAT;
  size_t size = kind == TF_STRING ? sizeof(TF_TString) : TF_DataTypeSize(kind);
  TF_Tensor *tensor = TF_AllocateTensor(kind, dimensions, rank, values * size);
  void *data = TF_TensorData(tensor);
  for (size_t i = 0; i < values; i++, argument++) {
    if (kind == TF_STRING) read_string(*argument, (TF_TString *)data + i);
    if (kind == TF_INT32) ((int32_t *)data)[i] = atoi(*argument);
    if (kind == TF_FLOAT) ((float *)data)[i] = strtof(*argument, NULL);
  }
  *arguments = argument;
  return tensor;
}

static void print_string(const TF_TString *string) {
  const unsigned char *bytes = (const unsigned char *)TF_StringGetDataPointer(string);
  printf(" x");
  for (size_t i = 0; i < TF_StringGetSize(string); i++) printf("%02x", bytes[i]);
}

static void print_tensor(TF_Tensor *tensor) {
  TF_DataType kind = TF_TensorType(tensor);
  int rank = TF_NumDims(tensor);
  int64_t dimensions[MOST];
  for (int i = 0; i < rank; i++) dimensions[i] = TF_Dim(tensor, i);
  printf("%s %d", kind == TF_STRING ? "string" : kind == TF_FLOAT ? "float" : "int", rank);
  for (int i = 0; i < rank; i++) printf(" %lld", (long long)dimensions[i]);
  void *data = TF_TensorData(tensor);
  for (size_t i = 0; i < count(rank, dimensions); i++) {
    if (kind == TF_STRING) print_string((TF_TString *)data + i);
    if (kind == TF_FLOAT) printf(" %.9g", ((float *)data)[i]);
    if (kind == TF_INT32) printf(" %d", ((int32_t *)data)[i]);
    if (kind == TF_BOOL) printf(" %d", ((unsigned char *)data)[i]);
  }
  printf("\n");
}

static void print_error(TF_Status *status) {
  printf("error %d: ", TF_GetCode(status));
  for (const char *c = TF_Message(status); *c; c++) putchar(*c == '\n' ? ' ' : *c);
  printf("\n");
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  _ZN10tensorflow21DisableXlaCompilationEv();
  TF_Status *status = TF_NewStatus();
  if (strcmp(argv[2], "-")) TF_LoadLibrary(argv[2], status);
  check(status, "the library of operations");
  const char *tags[] = {"serve"};
  TF_Graph *graph = TF_NewGraph();
  TF_SessionOptions *options = TF_NewSessionOptions();
  TF_Session *session =
      TF_LoadSessionFromSavedModel(options, NULL, argv[1], tags, 1, graph, NULL, status);
  check(status, "the model");

  TF_Output inputs[MOST], outputs[MOST];
  TF_Tensor *fed[MOST], *fetched[MOST] = {0};
  int num_inputs = 0, num_outputs = 0;
  char **argument = argv + 3;
  while (argument < argv + argc) {
    const char *word = *argument++;
    if (!strcmp(word, "in")) {
      inputs[num_inputs] = find(graph, *argument++);
      fed[num_inputs++] = read_tensor(&argument);
    } else if (!strcmp(word, "out")) {
      outputs[num_outputs++] = find(graph, *argument++);
    } else {
      TF_SessionRun(session, NULL, inputs, fed, num_inputs, outputs, fetched, num_outputs, NULL,
                    0, NULL, status);
      for (int i = 0; i < num_outputs; i++) {
        if (TF_GetCode(status) == TF_OK) print_tensor(fetched[i]);
        else print_error(status);
      }
      num_inputs = num_outputs = 0;
    }
  }
  TF_CloseSession(session, status);
  check(status, "closing");
  return 0;
}
