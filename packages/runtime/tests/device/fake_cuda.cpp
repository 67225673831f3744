// A CUDA device made of host memory, for testing native launches without a GPU. Two halves in one library:
// the driver's entry points (they record, and run one kernel for real), and torch's side of a device (guard, streams,
// allocator).
#include <torch/csrc/python_headers.h>

#include <ATen/core/Tensor.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>
#include <torch/csrc/autograd/python_variable.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

namespace {

constexpr int kDevices = 3;
std::mutex mutex;
std::string log_text;   // one line an event
int failing_status = 0;  // the next launch fails with this
int64_t live_blocks = 0;

thread_local int current_device = 0;
thread_local void* current_context = nullptr;
thread_local int64_t streams[kDevices] = {0, 0, 0};

void note(const std::string& line) {
  const std::lock_guard<std::mutex> lock(mutex);
  log_text += line + "\n";
}

void* context_of(int device) { return reinterpret_cast<void*>(static_cast<intptr_t>(0x1000 + device)); }

// A "cubin" is text: the sizes of its parameters, as in "8 8 4 8".
struct Module {
  std::vector<size_t> sizes;
  void* context;
};
struct Function {
  Module* module;
  std::string name;
};

struct Guard final : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  c10::Device device(int index) const { return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index)); }
  c10::Device getDevice() const override { return device(current_device); }
  c10::Device exchangeDevice(c10::Device next) const override {
    const c10::Device before = getDevice();
    setDevice(next);
    return before;
  }
  void setDevice(c10::Device next) const override {
    if (next.index() != current_device) note("device " + std::to_string(next.index()));
    current_device = next.index();
    current_context = context_of(current_device);
  }
  void uncheckedSetDevice(c10::Device next) const noexcept override { setDevice(next); }
  c10::Stream getStream(c10::Device of) const noexcept override {
    return c10::Stream(c10::Stream::UNSAFE, of, streams[of.index()]);
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return reinterpret_cast<void*>(stream.id()); }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }
};

struct HostAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* data = bytes == 0 ? nullptr : std::aligned_alloc(512, (bytes + 511) / 512 * 512);
    note("allocate " + std::to_string(bytes) + " on " + std::to_string(current_device));
    if (data != nullptr) ++live_blocks;
    return {data, data, &HostAllocator::free_block,
            c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(current_device))};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
  static void free_block(void* data) {
    if (data != nullptr) --live_blocks;
    std::free(data);
  }
};

Guard guard;
HostAllocator allocator;

std::atomic<c10::Allocator*>* torchs_allocator() {
  void* library = dlopen("libc10_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  void* found = library == nullptr ? nullptr : dlsym(library, "_ZN3c104cuda20CUDACachingAllocator9allocatorE");
  return static_cast<std::atomic<c10::Allocator*>*>(found);
}

template <typename T>
T read(void** parameters, size_t index) {
  T value;
  std::memcpy(&value, parameters[index], sizeof value);
  return value;
}

at::Tensor moved(const at::Tensor& source, c10::Device device, c10::DispatchKey key, c10::Allocator* to) {
  const size_t bytes = source.storage().nbytes();
  c10::DataPtr data = to->allocate(bytes);
  if (bytes != 0) std::memcpy(data.get(), source.storage().data(), bytes);
  auto storage =
      c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, std::move(data), to, true);
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(storage)), c10::DispatchKeySet(key),
                                                             source.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(source.sizes(), source.strides(), source.storage_offset());
  return made;
}

}  // namespace

extern "C" {

int cuInit(unsigned) { return 0; }
int cuGetErrorString(int status, const char** text) {
  *text = status == 719 ? "unspecified launch failure" : "some error";
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal < kDevices ? 0 : 101;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = context_of(device);
  return 0;
}
int cuCtxGetCurrent(void** context) {
  *context = current_context;
  return 0;
}
int cuCtxSetCurrent(void* context) {
  current_context = context;
  return 0;
}
int cuModuleLoadData(void** module, const void* image) {
  auto* made = new Module{{}, current_context};
  const std::string text(static_cast<const char*>(image));
  if (text == "broken") return 200;
  for (size_t at = 0; at < text.size();) {
    size_t used = 0;
    made->sizes.push_back(std::stoul(text.substr(at), &used));
    at += used;
  }
  note("load on " + std::to_string(reinterpret_cast<intptr_t>(current_context) - 0x1000));
  *module = made;
  return 0;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  *function = new Function{static_cast<Module*>(module), name};
  return 0;
}
int cuFuncSetAttribute(void*, int attribute, int value) {
  note("attribute " + std::to_string(attribute) + " = " + std::to_string(value));
  return 0;
}
int cuThreadExchangeStreamCaptureMode(int*) { return 0; }

int cuLaunchKernel(void* handle, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned, unsigned,
                   unsigned shared, void* stream, void** parameters, void**) {
  if (failing_status != 0) return std::exchange(failing_status, 0);
  const Function& function = *static_cast<Function*>(handle);
  if (function.module->context != current_context) return 400;
  std::string line = "launch " + function.name + " grid " + std::to_string(x) + "," + std::to_string(y) + "," +
                     std::to_string(z) + " threads " + std::to_string(threads) + " shared " + std::to_string(shared) +
                     " stream " + std::to_string(reinterpret_cast<intptr_t>(stream)) + " context " +
                     std::to_string(reinterpret_cast<intptr_t>(current_context) - 0x1000) + " arguments";
  for (size_t i = 0; i < function.module->sizes.size(); ++i) {
    line += ' ';
    const auto* bytes = static_cast<const unsigned char*>(parameters[i]);
    for (size_t b = 0; b < function.module->sizes[i]; ++b) {
      static const char* digits = "0123456789abcdef";
      line += digits[bytes[b] >> 4];
      line += digits[bytes[b] & 15];
    }
  }
  note(line);
  if (function.name.rfind("scale", 0) == 0) {  // (x, y, n as i32, factor as fp32)
    const auto* from = read<const float*>(parameters, 0);
    auto* to = read<float*>(parameters, 1);
    for (int i = 0; i < read<int32_t>(parameters, 2); ++i) to[i] = from[i] * read<float>(parameters, 3);
  }
  return 0;
}

int cuDriverGetVersion(int* version) {
  *version = 12040;
  return 0;
}

int cuLaunchKernelEx(const void* config, void* handle, void** parameters, void** extra) {
  struct Attribute {
    int id;
    char padding[4];
    int flag;
  };
  struct Config {
    unsigned grid[3], block[3], shared;
    void* stream;
    const Attribute* attributes;
    unsigned count;
  };
  const auto& given = *static_cast<const Config*>(config);
  if (given.count != 1 || given.attributes->id != 6 || given.attributes->flag != 1) return 1;
  note("early");
  return cuLaunchKernel(handle, given.grid[0], given.grid[1], given.grid[2], given.block[0], given.block[1],
                        given.block[2], given.shared, given.stream, parameters, extra);
}

// The side of the tests.

static const c10::impl::DeviceGuardImplInterface* guard_before = nullptr;
static c10::Allocator *registered_before = nullptr, *chosen_before = nullptr;

void fake_install() {
  auto& entry = c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::DeviceType::CUDA)];
  guard_before = entry.exchange(&guard);
  if (auto* chosen = torchs_allocator()) chosen_before = chosen->exchange(&allocator);
  c10::SetAllocator(c10::kCUDA, &allocator, 255);
}

void fake_uninstall() {
  c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::DeviceType::CUDA)].store(guard_before);
  if (auto* chosen = torchs_allocator()) chosen->store(chosen_before);
}

void fake_set_stream(int device, int64_t stream) { streams[device] = stream; }
void fake_set_device(int device) {
  current_device = device;
  current_context = context_of(device);
}
int fake_device() { return current_device; }
void fake_fail_next_launch(int status) { failing_status = status; }
int64_t fake_live_blocks() { return live_blocks; }

// The events since the last call, as a Python string.
PyObject* fake_events() {
  const std::lock_guard<std::mutex> lock(mutex);
  PyObject* text = PyUnicode_FromStringAndSize(log_text.data(), static_cast<Py_ssize_t>(log_text.size()));
  log_text.clear();
  return text;
}

PyObject* fake_to_cuda(PyObject* tensor, int device) {
  const int before = std::exchange(current_device, device);
  PyObject* made =
      THPVariable_Wrap(moved(THPVariable_Unpack(tensor), guard.device(device), c10::DispatchKey::CUDA, &allocator));
  current_device = before;
  return made;
}

PyObject* fake_to_cpu(PyObject* tensor) {
  return THPVariable_Wrap(
      moved(THPVariable_Unpack(tensor), c10::kCPU, c10::DispatchKey::CPU, c10::GetAllocator(c10::kCPU)));
}
}
