"""Devices as their libraries answer for them: one of every product that a shipped GPU type knows, and some in trouble.

Names, PCI ids, compute capabilities and gfx targets are the vendors' (NVIDIA's driver, pci.ids, libdrm's amdgpu.ids);
clocks and powers are plausible for the product.
"""

from __future__ import annotations

from typing import Any

GIB = 1 << 30

Answers = dict[str, Any]


def nvidia(
    name: str,
    pci_id: int,
    memory_gib: int,
    capability: tuple[int, int],
    *,
    number: int = 0,
    watts: int = 700,
    **more: object,
) -> Answers:
    """The answers of an idle, healthy device; `more` replaces some."""
    remapping = {"nvmlDeviceGetRemappedRows": [0, 0, 0, 0]} if capability >= (8, 0) else {}
    if capability < (8, 0):
        remapping["nvmlDeviceGetRetiredPagesPendingStatus"] = 0  # type: ignore[assignment]
    # Memory clocks are locked from Ampere on.
    fixed = {} if capability >= (8, 0) else {"nvmlDeviceSetMemoryLockedClocks": {"error": "NotSupported"}}
    mig = {"nvmlDeviceGetMigMode": [0, 0]} if capability in {(8, 0), (9, 0), (10, 0)} else {}
    return {
        "nvmlDeviceGetUUID": f"GPU-0f{number:02x}a1b2-{pci_id:04x}-4c5d-8e9f-0123456789ab",
        "nvmlDeviceGetName": name,
        "nvmlDeviceGetMinorNumber": number,
        "nvmlDeviceGetPciInfo": {"busId": f"00000000:{0x1A + number:02X}:00.0", "pciDeviceId": pci_id << 16 | 0x10DE},
        "nvmlDeviceGetCudaComputeCapability": list(capability),
        "nvmlDeviceGetMemoryInfo": {
            "total": memory_gib * GIB,
            "used": 600 << 20,
            "free": memory_gib * GIB - (600 << 20),
        },
        "nvmlDeviceGetEccMode": [1, 1],
        "nvmlDeviceGetPersistenceMode": 1,
        "nvmlDeviceGetMaxClockInfo": {"1": 1980, "2": 2619},
        "nvmlDeviceGetClockInfo": {"1": 345, "2": 2619},
        "nvmlDeviceGetEnforcedPowerLimit": watts * 1000,
        "nvmlDeviceGetPowerUsage": 72_310,
        "nvmlDeviceGetTemperature": 31,
        "nvmlDeviceGetCurrentClocksEventReasons": 1,
        "nvmlDeviceGetComputeRunningProcesses": [],
        "nvmlDeviceGetMPSComputeRunningProcesses": [],
        "nvmlDeviceGetComputeMode": 0,
        "nvmlDeviceGetTotalEccErrors": 0,
        "nvmlDeviceGetFieldValues": {"230": 0},
        **remapping,
        **mig,
        **fixed,
        **more,
    }


def amd(name: str, device_id: int, memory_gib: int, target: str, *, number: int = 0, **more: object) -> Answers:
    """The answers of an idle, healthy device or partition; `more` replaces some."""
    return {
        "amdsmi_get_gpu_device_uuid": f"{number:02x}ff{device_id:04x}-0000-1000-80b1-{number:012x}",
        "amdsmi_get_gpu_device_bdf": f"0000:{0xC1 + number:02X}:00.0",
        "amdsmi_get_gpu_asic_info": {
            "market_name": name,
            "vendor_id": 0x1002,
            "vendor_name": "Advanced Micro Devices Inc. [AMD/ATI]",
            "device_id": device_id,
            "target_graphics_version": target,
        },
        "amdsmi_get_gpu_compute_partition": "SPX",
        "amdsmi_get_gpu_driver_info": {"driver_name": "amdgpu", "driver_version": "6.14.14", "driver_date": "N/A"},
        "amdsmi_get_gpu_vram_usage": {"vram_total": memory_gib * 1024, "vram_used": 283},
        "amdsmi_get_clock_info": {"GFX": {"clk": 132, "max_clk": 2100}, "MEM": {"clk": 900, "max_clk": 1300}},
        "amdsmi_get_temp_metric": 38,
        "amdsmi_get_power_info": {"current_socket_power": 138, "average_socket_power": "N/A"},
        "amdsmi_get_power_cap_info": {"power_cap": 750_000_000},
        "amdsmi_get_gpu_process_list": [],
        "amdsmi_get_gpu_bad_page_info": [],
        "amdsmi_get_gpu_total_ecc_count": {"correctable_count": 0, "uncorrectable_count": 0},
        "amdsmi_get_gpu_metrics_info": {
            "accumulation_counter": 9_000,
            "prochot_residency_acc": 0,
            "ppt_residency_acc": 120,
            "socket_thm_residency_acc": 0,
            "vr_thm_residency_acc": 0,
            "hbm_thm_residency_acc": "N/A",
            "xcp_stats.gfx_below_host_limit_acc": [[5, 0, "N/A"], ["N/A"] * 3],
        },
        "amdsmi_get_gpu_enumeration_info": {"drm_render": 128 + number, "drm_card": number, "hip_id": number},
        "amdsmi_get_violation_status": {"active_ppt_pwr": False, "active_socket_thrm": False, "acc_counter": 9},
        **more,
    }


#: Product -> the type it is one of, and its answers.
NVIDIA: dict[str, tuple[str, Answers]] = {
    "T4": ("T4", nvidia("Tesla T4", 0x1EB8, 15, (7, 5), watts=70)),
    "T4, newer driver": ("T4", nvidia("NVIDIA T4", 0x1EB8, 15, (7, 5), watts=70)),
    "L4": ("L4", nvidia("NVIDIA L4", 0x27B8, 23, (8, 9), watts=72)),
    "A100 SXM 40": ("A100", nvidia("NVIDIA A100-SXM4-40GB", 0x20B0, 40, (8, 0), watts=400)),
    "A100 SXM 80": ("A100", nvidia("NVIDIA A100-SXM4-80GB", 0x20B2, 80, (8, 0), watts=400)),
    "A100 PCIe 40": ("A100", nvidia("NVIDIA A100-PCIE-40GB", 0x20F1, 40, (8, 0), watts=250)),
    "A100 PCIe 80": ("A100", nvidia("NVIDIA A100 80GB PCIe", 0x20B5, 80, (8, 0), watts=300)),
    "A100 PCIe 40, older driver": ("A100", nvidia("A100-PCIE-40GB", 0x20F1, 40, (8, 0), watts=250)),
    "H100 SXM": ("H100", nvidia("NVIDIA H100 80GB HBM3", 0x2330, 79, (9, 0))),
    "H100 PCIe": ("H100", nvidia("NVIDIA H100 PCIe", 0x2331, 79, (9, 0), watts=350)),
    "H100 NVL": ("H100", nvidia("NVIDIA H100 NVL", 0x2321, 93, (9, 0), watts=400)),
    "H200": ("H200", nvidia("NVIDIA H200", 0x2335, 140, (9, 0))),
    "H200 NVL": ("H200", nvidia("NVIDIA H200 NVL", 0x233B, 140, (9, 0), watts=600)),
    "B200": ("B200", nvidia("NVIDIA B200", 0x2901, 179, (10, 0), watts=1000)),
}
AMD: dict[str, tuple[str, Answers]] = {
    "MI250X": ("MI250", amd("AMD Instinct MI250X", 0x7408, 64, "gfx90a")),
    "MI250": ("MI250", amd("AMD Instinct MI250X / MI250", 0x740C, 64, "gfx90a")),
    "MI250, as pci.ids has it": ("MI250", amd("AMD Instinct MI250X/MI250", 0x740C, 64, "gfx90a")),
    "MI250, older ROCm": ("MI250", amd("AMD INSTINCT MI250 (MCM) OAM AC MBA", 0x740C, 64, "gfx90a")),
    "MI300X": ("MI300", amd("AMD Instinct MI300X", 0x74A1, 192, "gfx942")),
    "MI300X OAM": ("MI300", amd("AMD INSTINCT MI300X OAM", 0x74A1, 192, "gfx942")),
    "MI300X VF": ("MI300", amd("AMD Instinct MI300X VF", 0x74B5, 192, "gfx942")),
    # libdrm's list of names is older than the device, or missing.
    "MI300X without a name": ("MI300", amd("AMD Radeon Graphics", 0x74A1, 192, "gfx942")),
    "MI300X by number": ("MI300", amd("0x74a1", 0x74A1, 192, "942")),
    "MI355X": ("MI355X", amd("AMD Instinct MI355X", 0x75A3, 288, "gfx950")),
    "MI355X without a name": ("MI355X", amd("N/A", 0x75A3, 288, "gfx950")),
}
#: Devices whose names or numbers look like those of a type, and which are none of it.
NVIDIA_STRANGERS: dict[str, Answers] = {
    "A100X": nvidia("NVIDIA A100X", 0x20B8, 80, (8, 0)),
    "A10": nvidia("NVIDIA A10", 0x2236, 22, (8, 6)),
    "vGPU of an A100": nvidia("GRID A100X-40C", 0x20B5, 40, (8, 0)),
    "H20": nvidia("NVIDIA H20", 0x2329, 95, (9, 0)),
    "H800": nvidia("NVIDIA H800", 0x2324, 79, (9, 0)),
    "GH200": nvidia("NVIDIA GH200 480GB", 0x2342, 95, (9, 0)),
    "GB200": nvidia("NVIDIA GB200", 0x2941, 184, (10, 0)),
    "B300": nvidia("NVIDIA B300 SXM6 AC", 0x3182, 268, (10, 3)),
    # Its memory is the host's.
    "GB10": nvidia("NVIDIA GB10", 0x2E12, 0, (12, 1), nvmlDeviceGetMemoryInfo={"error": "NotSupported"}),
    "L40S": nvidia("NVIDIA L40S", 0x26B9, 45, (8, 9)),
    "L4 of a laptop": nvidia("NVIDIA L400", 0x27BA, 12, (8, 9)),
    "T400": nvidia("NVIDIA T400 4GB", 0x1FF2, 4, (7, 5)),
}
AMD_STRANGERS: dict[str, Answers] = {
    "MI210": amd("AMD Instinct MI210", 0x740F, 64, "gfx90a"),
    "MI300A": amd("AMD Instinct MI300A", 0x74A0, 128, "gfx942"),
    "MI308X": amd("AMD Instinct MI308X", 0x74A2, 192, "gfx942"),
    "MI325X": amd("AMD Instinct MI325X", 0x74A5, 256, "gfx942"),
    "MI350X": amd("AMD Instinct MI350X", 0x75A0, 288, "gfx950"),
}


def lost(answers: Answers) -> Answers:
    """The same device, fallen off the bus: it is still counted, and answers nothing."""
    return {**answers, "*": {"error": "GpuIsLost"}}


def divided(answers: Answers, *profiles: str) -> Answers:
    """The same device in MIG mode, with an instance of each profile."""
    return {
        **answers,
        "nvmlDeviceGetMigMode": [1, 1],
        "instances": [
            {
                "nvmlDeviceGetUUID": f"MIG-{number:08x}-1234-5678-9abc-def012345678",
                "nvmlDeviceGetName": f"{answers['nvmlDeviceGetName']} MIG {profile}",
                "nvmlDeviceGetMemoryInfo": {"total": 10 * GIB, "used": 15 << 20, "free": 10 * GIB},
                "nvmlDeviceGetComputeRunningProcesses": [],
            }
            for number, profile in enumerate(profiles)
        ],
    }
