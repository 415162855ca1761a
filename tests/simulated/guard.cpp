// The device guard of four pretended devices: all that torch's autograd and accelerator code ask of
// a device. There is one stream on each, and nothing on it ever has to be waited for.
#include <c10/core/impl/DeviceGuardImplInterface.h>

using namespace c10;

namespace {

constexpr DeviceIndex kDevices = 4;
thread_local DeviceIndex current = 0;

struct PretendedGuard final : impl::DeviceGuardImplInterface {
  static constexpr DeviceType kType = DeviceType::PrivateUse1;

  DeviceType type() const override { return kType; }
  DeviceIndex deviceCount() const noexcept override { return kDevices; }
  Device getDevice() const override { return {kType, current}; }
  void setDevice(Device device) const override { current = device.index(); }
  void uncheckedSetDevice(Device device) const noexcept override { current = device.index(); }
  Device exchangeDevice(Device device) const override {
    const Device before(kType, current);
    current = device.index();
    return before;
  }

  Stream getStream(Device device) const override {
    return Stream(Stream::DEFAULT, {kType, device.has_index() ? device.index() : current});
  }
  Stream getDefaultStream(Device device) const override { return getStream(device); }
  Stream exchangeStream(Stream stream) const override { return stream; }
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}
  void synchronizeDevice(const DeviceIndex) const override {}

  void record(void**, const Stream&, const DeviceIndex, const EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, PretendedGuard);

}  // namespace
