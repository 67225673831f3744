#include "cuda.hpp"

#include <dlfcn.h>

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "scalar.hpp"

namespace flambeau::cuda {
namespace {

using Status = int;
constexpr int kMaxDynamicSharedSize = 8;
// Kernels may use this much dynamic shared memory without asking for more.
constexpr uint32_t kDefaultShared = 48 * 1024;
constexpr int kCaptureRelaxed = 2;
// The first driver that records early launches in graphs.
constexpr int kEarlyLaunches = 12030;
constexpr int kProgrammaticStreamSerialization = 6;

[[noreturn]] void fail(const std::string& message) { throw ProgramError(ProgramError::Type::Runtime, message); }

}  // namespace

// CUlaunchAttribute and CUlaunchConfig, in no unnamed namespace: `Driver` has a member of these types, and where a file
// is compiled by inclusion g++ 13 crashes on that.
// NOLINTBEGIN(misc-use-internal-linkage)
struct LaunchAttribute {
  int id;
  char padding[4];
  union {
    int flag;
    char most[64];
  } value;
};
struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared;
  void* stream;
  LaunchAttribute* attributes;
  unsigned count;
};
// NOLINTEND(misc-use-internal-linkage)

// The entry points, by the names the driver exports.
struct Driver {
  explicit Driver(const std::string& path) {
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) fail(std::string("the CUDA driver library could not be opened: ") + dlerror());
    find(init, "cuInit");
    find(error_string, "cuGetErrorString");
    find(device_get, "cuDeviceGet");
    find(retain_context, "cuDevicePrimaryCtxRetain");
    find(get_context, "cuCtxGetCurrent");
    find(set_context, "cuCtxSetCurrent");
    find(load_module, "cuModuleLoadData");
    find(get_function, "cuModuleGetFunction");
    find(set_attribute, "cuFuncSetAttribute");
    find(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
    find(launch_kernel, "cuLaunchKernel");
    find(driver_version, "cuDriverGetVersion");
    check(init(0), "cuInit");
    int version = 0;
    check(driver_version(&version), "cuDriverGetVersion");
    if (version >= kEarlyLaunches) find(launch_kernel_ex, "cuLaunchKernelEx");
  }

  template <typename F>
  void find(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(library, name));
    if (function == nullptr) fail(std::string("the CUDA driver has no ") + name);
  }

  void check(Status status, const char* name) const {
    if (status == 0) return;
    const char* text = nullptr;
    error_string(status, &text);
    fail(std::string(name) + " failed with " + std::to_string(status) + ": " +
         (text != nullptr ? text : "unknown error"));
  }

  void* library = nullptr;
  Status (*init)(unsigned) = nullptr;
  Status (*error_string)(Status, const char**) = nullptr;
  Status (*device_get)(int*, int) = nullptr;
  Status (*retain_context)(void**, int) = nullptr;
  Status (*get_context)(void**) = nullptr;
  Status (*set_context)(void*) = nullptr;
  Status (*load_module)(void**, const void*) = nullptr;
  Status (*get_function)(void**, void*, const char*) = nullptr;
  Status (*set_attribute)(void*, int, int) = nullptr;
  Status (*exchange_capture_mode)(int*) = nullptr;
  Status (*driver_version)(int*) = nullptr;
  Status (*launch_kernel_ex)(const LaunchConfig*, void*, void**, void**) = nullptr;  // null where it is of no use
  Status (*launch_kernel)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                          void**) = nullptr;
};

namespace {

// What this process has loaded. Nothing is ever given back: kernels may be running, graphs may hold them.
struct Loaded {
  std::mutex mutex;
  std::string path = "libcuda.so.1";
  Driver* driver = nullptr;
  std::map<int, void*> contexts;
  std::map<std::pair<std::string, int>, std::unique_ptr<Function>> functions;
};

Loaded& loaded() {
  static auto* made = new Loaded();
  return *made;
}

// The lock is held.
Driver& driver_of(Loaded& state) {
  if (state.driver == nullptr) state.driver = new Driver(state.path);
  return *state.driver;
}

void make_current(const Driver& driver, void* context) {
  void* current = nullptr;
  driver.check(driver.get_context(&current), "cuCtxGetCurrent");
  if (current != context) driver.check(driver.set_context(context), "cuCtxSetCurrent");
}

void* context_of(Loaded& state, const Driver& driver, int ordinal) {
  void*& context = state.contexts[ordinal];
  if (context == nullptr) {
    int device = 0;
    driver.check(driver.device_get(&device, ordinal), "cuDeviceGet");
    driver.check(driver.retain_context(&context, device), "cuDevicePrimaryCtxRetain");
  }
  return context;
}

// Loading may allocate, which a stream that is being recorded forbids to everybody; kernels are no part of the
// recording.
class Relaxed {
 public:
  explicit Relaxed(const Driver& driver) : driver_(driver) { driver_.exchange_capture_mode(&mode_); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;
  ~Relaxed() { driver_.exchange_capture_mode(&mode_); }

 private:
  const Driver& driver_;
  int mode_ = kCaptureRelaxed;
};

std::unique_ptr<Function> load_new(const Driver& driver, const Image& image, void* context) {
  auto made = std::make_unique<Function>();
  made->driver = &driver;
  made->context = context;
  made->threads = image.threads;
  made->shared = image.shared;
  made->global_scratch = image.global_scratch;
  made->profile_scratch = image.profile_scratch;
  made->waits = image.waits;
  make_current(driver, context);
  const Relaxed relaxed(driver);
  void* module = nullptr;
  driver.check(driver.load_module(&module, image.binary.data()), "cuModuleLoadData");
  driver.check(driver.get_function(&made->handle, module, image.name.c_str()), "cuModuleGetFunction");
  if (image.shared > kDefaultShared) {
    driver.check(driver.set_attribute(made->handle, kMaxDynamicSharedSize, static_cast<int>(image.shared)),
                 "cuFuncSetAttribute");
  }
  return made;
}

}  // namespace

void set_library(const std::string& path) {
  Loaded& state = loaded();
  const std::scoped_lock lock(state.mutex);
  if (path == state.path) return;
  state.path = path;
  state.driver = nullptr;
  state.contexts.clear();
  // The functions stay where they are: kernels that were bound before point to them.
  for (auto& [key, function] : state.functions) static_cast<void>(function.release());
  state.functions.clear();
}

const Function& load(const Image& image, int ordinal) {
  Loaded& state = loaded();
  const std::scoped_lock lock(state.mutex);
  std::unique_ptr<Function>& slot = state.functions[{image.key, ordinal}];
  if (slot == nullptr) {
    const Driver& driver = driver_of(state);
    slot = load_new(driver, image, context_of(state, driver, ordinal));
  }
  return *slot;
}

void launch(const Function& function, const uint32_t (&grid)[3], void* stream, void** parameters) {
  const Driver& driver = *function.driver;
  // A thread that has called nothing of CUDA yet has no context, and another library may have left its own.
  make_current(driver, function.context);
  if (function.waits && driver.launch_kernel_ex != nullptr) {
    LaunchAttribute early{kProgrammaticStreamSerialization, {}, {1}};
    const LaunchConfig config{
        {grid[0], grid[1], grid[2]}, {function.threads, 1, 1}, function.shared, stream, &early, 1};
    const Status status = driver.launch_kernel_ex(&config, function.handle, parameters, nullptr);
    if (status != 0) driver.check(status, "cuLaunchKernelEx");
    return;
  }
  const Status status = driver.launch_kernel(function.handle, grid[0], grid[1], grid[2], function.threads, 1, 1,
                                             function.shared, stream, parameters, nullptr);
  if (status != 0) driver.check(status, "cuLaunchKernel");
}

}  // namespace flambeau::cuda
