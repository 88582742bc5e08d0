// A greedy search without Python: token ids in, token ids out, one sentence per line.
//
//   tf-transformer export runs/mine --format litert --fixed-length 64 --beam 1 --output phone
//   pip install ai-edge-litert  # only for its libLiteRt.so
//   LIB=$(python -c "import ai_edge_litert; print(ai_edge_litert.__path__[0])")
//   g++ -std=c++17 -O2 examples/litert/greedy.cc -o greedy -L$LIB -lLiteRt -Wl,-rpath,$LIB
//   echo "17 254 8 3" | ./greedy phone/1/model.tflite 50  # max_extra_length of model_card.json
//
// To convert text to ids (then append EOS) and back, use SentencePiece's C++ library with
// phone/1/tokenizer.model.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

// The part of LiteRT's C API used here; its headers, litert/c/*.h, come only with its sources.
extern "C" {
struct LiteRtTensorType {
  int element;  // such as kBool
  unsigned int rank : 7, has_strides : 1;
  int32_t shape[8];
  uint32_t strides[8];
};
using Handle = void *;  // to one of LiteRT's objects; functions return 0 on success
int LiteRtCreateEnvironment(int, const void *options, Handle *environment);
int LiteRtCreateModelFromFile(Handle environment, const char *file, Handle *model);
int LiteRtCreateOptions(Handle *options);
int LiteRtSetOptionsHardwareAccelerators(Handle options, int accelerators);
int LiteRtCreateCompiledModel(Handle environment, Handle model, Handle options, Handle *compiled);
int LiteRtGetModelSignature(Handle model, size_t index, Handle *signature);
int LiteRtGetSignatureKey(Handle signature, const char **key);
int LiteRtGetNumSignatureInputs(Handle signature, size_t *number);
int LiteRtGetNumSignatureOutputs(Handle signature, size_t *number);
int LiteRtGetSignatureInputName(Handle signature, size_t index, const char **name);
int LiteRtGetSignatureOutputName(Handle signature, size_t index, const char **name);
int LiteRtGetSignatureInputTensorByIndex(Handle signature, size_t index, Handle *tensor);
int LiteRtGetSignatureOutputTensorByIndex(Handle signature, size_t index, Handle *tensor);
int LiteRtGetRankedTensorType(Handle tensor, LiteRtTensorType *type);
int LiteRtCreateTensorBufferFromHostMemory(const LiteRtTensorType *type, void *memory,
                                           size_t bytes, void (*free)(void *), Handle *buffer);
int LiteRtRunCompiledModel(Handle compiled, size_t signature, size_t num_inputs, Handle *inputs,
                           size_t num_outputs, Handle *outputs);
}
static_assert(sizeof(LiteRtTensorType) == 72, "as in litert/c/litert_model_types.h");
enum { kCpu = 1, kBool = 6 };
constexpr int kPad = 0, kBos = 2, kEos = 3;

#define CHECK(call) check(call, #call)
void check(int status, const char *call) {
  if (status == 0) return;
  std::fprintf(stderr, "status %d of %s\n", status, call);
  std::exit(1);
}

struct alignas(64) Block {  // LiteRT requires memory aligned to 64 bytes
  char bytes[64];
};

struct Tensor {
  LiteRtTensorType type;
  size_t size = 1;
  std::vector<Block> memory;
  Handle buffer;

  explicit Tensor(Handle tensor) {
    CHECK(LiteRtGetRankedTensorType(tensor, &type));
    for (unsigned int i = 0; i < type.rank; i++) {
      CHECK(type.shape[i] < 1);  // fails if exported without --fixed-length
      size *= type.shape[i];
    }
    const size_t bytes = size * (type.element == kBool ? 1 : 4);
    memory.resize(bytes / sizeof(Block) + 1);
    CHECK(LiteRtCreateTensorBufferFromHostMemory(&type, memory.data(), bytes, nullptr, &buffer));
  }
  template <typename T> T *data() { return reinterpret_cast<T *>(memory.data()); }
};

struct Signature {
  Handle compiled;
  size_t index = 0;
  std::vector<Handle> in, out;
  std::map<std::string, Tensor> inputs, outputs;

  Signature(Handle model, Handle compiled, const std::string &key) : compiled(compiled) {
    Handle signature;
    const char *name;
    for (;; index++) {
      CHECK(LiteRtGetModelSignature(model, index, &signature));
      CHECK(LiteRtGetSignatureKey(signature, &name));
      if (key == name) break;
    }
    size_t num_inputs, num_outputs;
    CHECK(LiteRtGetNumSignatureInputs(signature, &num_inputs));
    CHECK(LiteRtGetNumSignatureOutputs(signature, &num_outputs));
    Handle tensor;
    for (size_t i = 0; i < num_inputs; i++) {
      CHECK(LiteRtGetSignatureInputName(signature, i, &name));
      CHECK(LiteRtGetSignatureInputTensorByIndex(signature, i, &tensor));
      in.push_back(inputs.emplace(name, tensor).first->second.buffer);
    }
    for (size_t i = 0; i < num_outputs; i++) {
      CHECK(LiteRtGetSignatureOutputName(signature, i, &name));
      CHECK(LiteRtGetSignatureOutputTensorByIndex(signature, i, &tensor));
      out.push_back(outputs.emplace(name, tensor).first->second.buffer);
    }
  }
  void run() {
    CHECK(LiteRtRunCompiledModel(compiled, index, in.size(), in.data(), out.size(), out.data()));
  }
};

// Copies the new row of each head, [1, N, H, 1, K], to a column of the cache, [1, N, H, C, K].
void keep(Tensor &rows, Tensor &cache, int column) {
  const int columns = cache.type.shape[3], size = cache.type.shape[4];
  for (size_t head = 0; head * size < rows.size; head++)
    std::copy_n(rows.data<float>() + head * size, size,
                cache.data<float>() + (head * columns + column) * size);
}

std::vector<int> translate(Signature &encode, Signature &step, const std::vector<int> &source,
                           int longest) {
  Tensor &ids = encode.inputs.at("source"), &ancestry = step.inputs.at("ancestry");
  Tensor &mask = step.inputs.at("memory_mask");
  const size_t length = source.size();
  CHECK(length > ids.size);
  for (size_t i = 0; i < ids.size; i++) {
    ids.data<int32_t>()[i] = i < length ? source[i] : kPad;
    if (mask.type.element == kBool) mask.data<bool>()[i] = i < length;  // exports up to 1.1.0
    else mask.data<int32_t>()[i] = i < length;
  }
  encode.run();
  for (const char *name : {"memory_keys", "memory_values"}) {
    Tensor &memory = encode.outputs.at(name);
    std::copy_n(memory.data<float>(), memory.size, step.inputs.at(name).data<float>());
  }
  // Which beam each cached step belongs to: 0, the only one, or -1 for steps not cached yet.
  std::fill_n(ancestry.data<int32_t>(), ancestry.size - 1, -1);
  const int columns = ancestry.size - 1;  // fewer than `longest` with an attention window
  std::vector<int> target;
  for (int token = kBos; token != kEos;) {
    const int position = target.size();
    *step.inputs.at("tokens").data<int32_t>() = token;
    *step.inputs.at("position").data<int32_t>() = position;
    step.run();
    keep(step.outputs.at("keys"), step.inputs.at("past_keys"), position % columns);
    keep(step.outputs.at("values"), step.inputs.at("past_values"), position % columns);
    ancestry.data<int32_t>()[position % columns] = 0;
    Tensor &logits = step.outputs.at("logits");
    float *first = logits.data<float>();
    first[kPad] = first[kBos] = -INFINITY;
    if (position == 0) first[kEos] = -INFINITY;  // a translation is not blank
    token = position + 1 < longest ? std::max_element(first, first + logits.size) - first : kEos;
    target.push_back(token);
  }
  return target;
}

int main(int argc, char **argv) {
  Handle environment, model, options, compiled;
  CHECK(argc != 3);
  const int extra = std::atoi(argv[2]);
  CHECK(LiteRtCreateEnvironment(0, nullptr, &environment));
  CHECK(LiteRtCreateModelFromFile(environment, argv[1], &model));
  CHECK(LiteRtCreateOptions(&options));
  CHECK(LiteRtSetOptionsHardwareAccelerators(options, kCpu));
  CHECK(LiteRtCreateCompiledModel(environment, model, options, &compiled));
  Signature encode(model, compiled, "encode"), step(model, compiled, "step");
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::vector<int> source, target;
    for (int id; words >> id;) source.push_back(id);
    if (!source.empty()) target = translate(encode, step, source, source.size() + extra);
    for (size_t i = 0; i < target.size(); i++) std::cout << (i ? " " : "") << target[i];
    std::cout << std::endl;
  }
}
